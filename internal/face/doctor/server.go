// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"

	"github.com/kubic-project/image-update-agent/internal/node/config"
	"github.com/kubic-project/image-update-agent/internal/node/images"
	"github.com/kubic-project/image-update-agent/internal/node/pods"
)

// AskContainerd asks the running containerd what it is, and for its config_path: config.NoPath where it has none, empty
// where it does not say (2.0 to 2.3, or CRI does not answer, which is another check).
func AskContainerd(ctx context.Context, s config.Settings) (images.Server, error) {
	server, err := images.AskServer(ctx, s.Containerd.Socket, s.Containerd.Namespace)
	if err != nil || server.ConfigPath != "" {
		return server, err
	}
	runtime, err := pods.New(pods.Options{Socket: s.CRI.Socket})
	if err != nil {
		return server, err
	}
	if path, known, err := runtime.ConfigPath(ctx); err == nil && known {
		server.ConfigPath = path
		if path == "" {
			server.ConfigPath = config.NoPath
		}
	}
	return server, nil
}
