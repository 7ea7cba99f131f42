// SPDX-License-Identifier: Apache-2.0

package localregistry

import "github.com/kubic-project/image-update-agent/internal/base/outside"

// Wanted is a registry for which a person has enabled the local registry. Other programs write hosts.toml files, too,
// so without it the agent could not tell that the local registry was removed.
type Wanted struct {
	Registry string   `json:"registry"`
	Position Position `json:"position"` // Fallback or Gate
	File     string   `json:"file"`     // the hosts.toml that named it at that time
}

// Memory stores the enabled registries.
type Memory interface {
	// Wanted returns the registries for which the local registry is enabled.
	Wanted() ([]Wanted, error)
	// Why returns why containerd does not ask the local registry as wanted. now is its current position.
	Why(w Wanted, now Position) string
}

func (k *Keeper) lost() (lost []LostRegistry, unknown string) {
	if k.Memory == nil {
		return nil, ""
	}
	return Lost(k.Memory, k.Hosts.Position)
}

// Lost returns the wanted registries whose hosts.toml no longer has the local registry at its position. position
// returns the current one. unknown is why the wanted registries are unknown; empty if they are known.
func Lost(m Memory, position func(registry string) Position) (lost []LostRegistry, unknown string) {
	wanted, err := m.Wanted()
	if err != nil {
		return nil, outside.Text(err.Error())
	}
	for _, w := range wanted {
		if now := position(w.Registry); now != w.Position {
			lost = append(lost, LostRegistry{
				Registry: w.Registry, Wanted: w.Position, Position: now, Reason: outside.Text(m.Why(w, now)),
			})
		}
	}
	return lost, ""
}
