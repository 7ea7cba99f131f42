// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"context"
	"encoding/json"
	"fmt"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ConfigPath returns the config_path of the running containerd, from its verbose status. known is false if the status
// does not have it: containerd 2.x has it elsewhere.
func (r *Runtime) ConfigPath(ctx context.Context) (path string, known bool, err error) {
	err = r.with(ctx, callTimeout, func(ctx context.Context, c session) error {
		answer, err := c.Status(ctx, &cri.StatusRequest{Verbose: true})
		if err != nil {
			return fmt.Errorf("status: %w", readable(err))
		}
		var config struct {
			Registry *struct {
				ConfigPath *string `json:"configPath"`
			} `json:"registry"`
		}
		if text := answer.GetInfo()["config"]; text != "" {
			if err := json.Unmarshal([]byte(text), &config); err != nil {
				return fmt.Errorf("status: not a configuration in JSON: %w", err)
			}
		}
		if config.Registry != nil && config.Registry.ConfigPath != nil {
			path, known = *config.Registry.ConfigPath, true
		}
		return nil
	})
	return path, known, err
}
