// SPDX-License-Identifier: Apache-2.0

package images

import (
	"context"
	"fmt"

	"github.com/containerd/containerd/v2/plugins"
)

// Server describes a containerd.
type Server struct {
	Version string // "v2.4.2", "1.6.20~ds1"
	// Snapshotters are the loaded ones, by name, with their capabilities: "rebase" (2.2
	// and later) accepts the layers of an image in any order.
	Snapshotters map[string][]string
	// ConfigPath is the config_path that CRI uses; empty: containerd before 2.4 does not report it.
	ConfigPath string
}

// AskServer queries the containerd behind a socket.
func AskServer(ctx context.Context, socket, namespace string) (Server, error) {
	store, err := New(Options{Socket: socket, Namespace: namespace, Source: struct{ Source }{}})
	if err != nil {
		return Server{}, err
	}
	return store.Server(ctx)
}

// Server asks containerd for its version and snapshotters.
func (s *Store) Server(ctx context.Context) (Server, error) {
	var server Server
	err := s.with(ctx, func(ctx context.Context, c *session) (err error) {
		server, err = c.introspect(ctx)
		return err
	})
	return server, err
}

func (c *session) introspect(ctx context.Context) (Server, error) {
	version, err := c.client.Version(ctx)
	if err != nil {
		return Server{}, fmt.Errorf("version: %w", err)
	}
	answer, err := c.client.IntrospectionService().Plugins(ctx,
		"type=="+plugins.SnapshotPlugin.String(), "type=="+plugins.CRIServicePlugin.String()+",id==images")
	if err != nil {
		return Server{}, fmt.Errorf("plugins: %w", err)
	}
	server := Server{Version: version.Version, Snapshotters: map[string][]string{}}
	for _, p := range answer.GetPlugins() {
		switch {
		case p.GetInitErr() != nil: // it is not loaded
		case p.GetType() == plugins.CRIServicePlugin.String():
			server.ConfigPath = p.GetExports()["RegistryConfigPath"]
		default:
			server.Snapshotters[p.GetID()] = p.GetCapabilities()
		}
	}
	return server, nil
}
