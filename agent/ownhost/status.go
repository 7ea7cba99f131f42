// SPDX-License-Identifier: Apache-2.0

package ownhost

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/internal/outside"
)

// Status is the node's own host, which answers what tags name.
type Status struct {
	// Registries are those whose hosts.toml names it, sorted.
	Registries []RegistryStatus `json:"registries"`
	// Answers counts what it answered since the boot, or since its journal began anew; null: that is
	// not known.
	Answers *Answers `json:"answers"`
	// Lost are the registries for which it was enabled and does not stand where it was.
	Lost []LostRegistry `json:"lost,omitempty"`
	// WantedError is why it is not known for which registries it was enabled; absent: it is.
	WantedError string `json:"wantedError,omitempty"`
	Error       string `json:"error"` // why its table could not be saved; "": it is up to date
	Down        string `json:"down"`  // why it did not answer the agent; "": it did
}

// RegistryStatus is a registry whose hosts.toml names the own host.
type RegistryStatus struct {
	Registry   string        `json:"registry" label:"registry"`
	Position   Position      `json:"position"`   // fallback or gate
	Tags       []ServedTag   `json:"tags"`       // that it answers
	Unanswered []UnservedTag `json:"unanswered"` // followed tags that it does not answer, and why
	// LastServed is when kubelet got an image from it last; null: not since the boot.
	LastServed *time.Time `json:"lastServed" metric:"own_host_last_served_timestamp_seconds" help:"When kubelet got an image from the node's own host last; not there before."`
	// AwaySince is when the registry answered last, while it does not; null: it answers.
	AwaySince *time.Time `json:"awaySince"`
}

// LostRegistry is a registry for which the own host was enabled, and which does not have it there any more.
type LostRegistry struct {
	Registry string   `json:"registry"`
	Wanted   Position `json:"wanted"`   // fallback or gate
	Position Position `json:"position"` // where it stands; "": containerd does not ask it
	Reason   string   `json:"reason"`
}

// ServedTag is a tag that the own host answers.
type ServedTag struct {
	Image      string        `json:"image"` // repository
	Tag        string        `json:"tag"`
	Digest     digest.Digest `json:"digest"`
	LastServed *time.Time    `json:"lastServed"`
}

// UnservedTag is a followed tag that the own host does not answer.
type UnservedTag struct {
	Image  string `json:"image"`
	Tag    string `json:"tag"`
	Reason string `json:"reason"`
}

// Answers counts the requests to the own host.
type Answers struct {
	Served  int `json:"served"`
	Unknown int `json:"unknown"` // the table did not have the tag: containerd asked the next host
	Refused int `json:"refused"` // no request of containerd's
}

// Status describes the own host; nil: no hosts.toml of a followed registry names it, and none should. away is when a
// registry answered last that does not answer now; nil: it answers.
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
				Image: e.Reference().Repository, Tag: e.Tag, Digest: e.Digest, LastServed: when(last[e.Reference().String()]),
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
	out.Lost, out.WantedError = k.lost()
	if len(out.Registries) == 0 && len(out.Lost) == 0 && out.WantedError == "" {
		return nil
	}
	out.Error, out.Down = textOf(k.err), textOf(k.down)
	return &out
}

// textOf is the text of an error; empty: there is none.
func textOf(err error) string {
	if err == nil {
		return ""
	}
	return outside.Text(err.Error())
}

// latest is when a tag of a registry was served last.
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
