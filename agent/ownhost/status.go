// SPDX-License-Identifier: Apache-2.0

package ownhost

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/outside"
)

// Status describes the own host; nil: no hosts.toml of a followed registry names it, and none should. sources are
// those of the record.
func (k *Keeper) Status(sources record.Entries[record.SourceRecord]) *status.OwnHostStatus {
	if k == nil {
		return nil
	}
	k.load()
	all := map[string]*status.OwnHostRegistry{}
	of := func(registry string) *status.OwnHostRegistry {
		if _, known := all[registry]; !known {
			all[registry] = nil
			if p := k.Hosts.Position(registry); p != Off {
				all[registry] = &status.OwnHostRegistry{
					Registry: registry, Position: string(p), Tags: []status.OwnHostTag{}, Unanswered: []status.OwnHostUnanswered{},
					AwaySince: awaySince(sources, registry),
				}
			}
		}
		return all[registry]
	}
	out := status.OwnHostStatus{Registries: []status.OwnHostRegistry{}}
	last := map[string]time.Time{}
	if k.Journal != nil {
		if j, err := k.Journal(); err == nil {
			out.Answers = &status.OwnHostAnswers{Served: j.Served, Unknown: j.Unknown, Refused: j.Refused}
			last = j.Last
		}
	}
	for _, e := range k.table.Entries {
		if r := of(e.Registry); r != nil {
			r.Tags = append(r.Tags, status.OwnHostTag{
				Image: e.Reference().Repository, Tag: e.Tag, Digest: e.Digest, LastServed: when(last[e.Reference().String()]),
			})
		}
	}
	for _, o := range k.omitted {
		if r := of(RegistryOf(o.Repository)); r != nil {
			r.Unanswered = append(r.Unanswered, status.OwnHostUnanswered{Image: o.Repository, Tag: o.Tag, Reason: o.Reason})
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

// awaySince is when a registry answered last for any of its repositories, if none of them answers
// now; nil: one does, or none was asked.
func awaySince(sources record.Entries[record.SourceRecord], registry string) *time.Time {
	var last time.Time
	failed := false
	for name, s := range sources {
		if RegistryOf(name) != registry || s.Kind != "" {
			continue
		}
		if s.Failures == 0 || s.List {
			return nil
		}
		failed = true
		if s.LastSuccess.After(last) {
			last = s.LastSuccess
		}
	}
	if !failed {
		return nil
	}
	return when(last)
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
