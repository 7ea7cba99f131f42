// SPDX-License-Identifier: Apache-2.0

package ownhost

import "github.com/kubic-project/image-update-agent/internal/outside"

// Wanted is a registry for which a person has enabled the own host. Other programs write hosts.toml files, too, so that
// only this says that the own host is missed.
type Wanted struct {
	Registry string   `json:"registry"`
	Position Position `json:"position"` // Fallback or Gate
	File     string   `json:"file"`     // the hosts.toml that named it then
}

// Memory knows what was enabled.
type Memory interface {
	// Wanted are the registries for which the own host is enabled.
	Wanted() ([]Wanted, error)
	// Why says why containerd does not ask the own host where it is wanted. now is where it stands.
	Why(w Wanted, now Position) string
}

func (k *Keeper) lost() (lost []LostRegistry, unknown string) {
	if k.Memory == nil {
		return nil, ""
	}
	return Lost(k.Memory, k.Hosts.Position)
}

// Lost returns the wanted registries whose hosts do not have the own host where it was enabled. position is where it
// stands. unknown is why that is not known; empty: it is.
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
