// SPDX-License-Identifier: Apache-2.0

package localregistry

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/internal/base/outside"
)

// Status is the status of the node's local registry.
type Status struct {
	// Registries are those whose hosts.toml names it, sorted.
	Registries []RegistryStatus `json:"registries"`
	// Answers counts its answers since the boot, or since its journal was reset; null: unknown.
	Answers *Answers `json:"answers"`
	// Lost are the registries that no longer have the local registry at its position.
	Lost []LostRegistry `json:"lost,omitempty"`
	// WantedError is why the registries for which it was enabled are unknown; absent if they are known.
	WantedError string `json:"wantedError,omitempty"`
	Error       string `json:"error"` // why its table could not be saved; "" if it is up to date
	Down        string `json:"down"`  // why it did not answer the agent; "" if it did
}

// RegistryStatus is a registry whose hosts.toml names the local registry.
type RegistryStatus struct {
	Registry   string        `json:"registry" label:"registry"`
	Position   Position      `json:"position"`   // fallback or gate
	Tags       []ServedTag   `json:"tags"`       // that it answers
	Unanswered []UnservedTag `json:"unanswered"` // followed tags that it does not answer, and why
	// LastServed is when kubelet last got an image from it; null: not since the boot.
	LastServed *time.Time `json:"lastServed" metric:"local_registry_last_served_timestamp_seconds" help:"When kubelet last got an image from the local registry; absent before the first time."`
	// AwaySince is the last answer of a registry that does not answer now; null if it answers.
	AwaySince *time.Time `json:"awaySince"`
}

// LostRegistry is a registry for which the local registry was enabled, and whose hosts.toml no longer has it there.
type LostRegistry struct {
	Registry string   `json:"registry"`
	Wanted   Position `json:"wanted"`   // fallback or gate
	Position Position `json:"position"` // the current position; "": containerd does not ask it
	Reason   string   `json:"reason"`
}

// ServedTag is a tag that the local registry answers.
type ServedTag struct {
	Image      string        `json:"image"` // repository
	Tag        string        `json:"tag"`
	Digest     digest.Digest `json:"digest"`
	LastServed *time.Time    `json:"lastServed"`
}

// UnservedTag is a followed tag that the local registry does not answer.
type UnservedTag struct {
	Image  string `json:"image"`
	Tag    string `json:"tag"`
	Reason string `json:"reason"`
}

// Answers counts the requests to the local registry.
type Answers struct {
	Served  int `json:"served"`
	Unknown int `json:"unknown"` // the table did not have the tag: containerd asks the next host
	Refused int `json:"refused"` // not a request that containerd sends
}

// Status returns the status of the local registry; nil if no hosts.toml of a followed registry names it, and none
// should. away returns the last answer of a registry that does not answer now; nil if it answers.
func (k *Keeper) Status(away func(registry string) *time.Time) *Status {
	if k == nil {
		return nil
	}
	k.load()
	all := map[string]*RegistryStatus{}
	of := func(registry string) *RegistryStatus {
		if _, known := all[registry]; !known {
			all[registry] = nil
			if p := k.Hosts.Position(registry); p != Off {
				all[registry] = &RegistryStatus{
					Registry: registry, Position: p, Tags: []ServedTag{}, Unanswered: []UnservedTag{},
					AwaySince: away(registry),
				}
			}
		}
		return all[registry]
	}
	out := Status{Registries: []RegistryStatus{}}
	last := map[string]time.Time{}
	if k.Journal != nil {
		if j, err := k.Journal(); err == nil {
			out.Answers = &Answers{Served: j.Served, Unknown: j.Unknown, Refused: j.Refused}
			last = j.Last
		}
	}
	for _, e := range k.table.Entries {
		if r := of(e.Registry); r != nil {
			r.Tags = append(r.Tags, ServedTag{
				Image: ReferenceOf(e).Repository, Tag: e.Tag, Digest: digest.Digest(e.Digest), LastServed: when(last[e.Image()]),
			})
		}
	}
	for _, o := range k.omitted {
		if r := of(RegistryOf(o.Repository)); r != nil {
			r.Unanswered = append(r.Unanswered, UnservedTag{Image: o.Repository, Tag: o.Tag, Reason: o.Reason})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if r := all[name]; r != nil {
			r.LastServed = latest(last, name)
			out.Registries = append(out.Registries, *r)
		}
	}
	out.Lost, out.WantedError = Lost(k.Memory, k.Hosts.Position)
	if len(out.Registries) == 0 && len(out.Lost) == 0 && out.WantedError == "" {
		return nil
	}
	out.Error, out.Down = textOf(k.err), textOf(k.down)
	return &out
}

// textOf returns the text of an error; "" for nil.
func textOf(err error) string {
	if err == nil {
		return ""
	}
	return outside.Text(err.Error())
}

// latest returns when a tag of a registry was last served.
func latest(last map[string]time.Time, registry string) *time.Time {
	var at time.Time
	for image, served := range last {
		if strings.HasPrefix(image, registry+"/") && served.After(at) {
			at = served
		}
	}
	return when(at)
}

func when(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}
