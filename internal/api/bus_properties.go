// SPDX-License-Identifier: Apache-2.0

package api

import (
	"slices"
	"time"

	"github.com/godbus/dbus/v5"

	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/outside"
)

const (
	// maxListed bounds the lists among the properties, as the grain is bounded.
	maxListed = 64
	// maxText bounds a text, in bytes; maxWord one that is a name.
	maxText = 4 << 10
	maxWord = 512
)

// record is one element of a list on the bus: a{sv}.
type record = map[string]dbus.Variant

// properties are a status as the object has it.
func (b *Bus) properties(s status.Status) map[string]dbus.Variant {
	all := properties(s)
	all["Revision"] = dbus.MakeVariant(b.revision.Load())
	return all
}

func properties(s status.Status) map[string]dbus.Variant {
	out := map[string]dbus.Variant{
		"Version":          dbus.MakeVariant(outside.Line(s.Version, maxWord)),
		"State":            dbus.MakeVariant(string(s.State)),
		"Reason":           dbus.MakeVariant(outside.Line(s.Reason, maxText)),
		"Activity":         dbus.MakeVariant(string(s.Activity)),
		"UpdatesAvailable": dbus.MakeVariant(len(s.Updates) > 0),
		"LastCheck":        dbus.MakeVariant(microseconds(s.LastCheck)),
		"NextCheck":        dbus.MakeVariant(microseconds(s.NextCheck)),
	}
	cut := []string{}
	for name, list := range map[string][]record{
		"Updates": list(s.Updates, updateOf), "NotAllowed": list(s.NotAllowed, notAllowedOf), "Holds": holdsOf(s),
		"StandingHolds": list(s.StandingHolds, standingHoldOf), "Withdrawn": list(withdrawn(s), withdrawnOf),
		"Failures": list(s.Failures, failureOf), "Images": list(s.Images, imageOf), "Sources": list(s.Sources, sourceOf),
		"History": list(s.History, historyOf),
	} {
		if len(list) > maxListed {
			list, cut = list[:maxListed], append(cut, name)
		}
		out[name] = dbus.MakeVariant(list)
	}
	slices.Sort(cut)
	out["Cut"] = dbus.MakeVariant(cut)
	return out
}

// list describes the elements of a list, one more than are listed.
func list[E any](all []E, describe func(E) record) []record {
	out := []record{}
	for _, e := range all[:min(len(all), maxListed+1)] {
		out = append(out, describe(e))
	}
	return out
}

func updateOf(u status.AnnouncedUpdate) record {
	return texts("image", u.Image, "change", u.Change, "from", u.From, "to", u.To, "digest", u.Digest.String())
}

func notAllowedOf(n status.NotAllowed) record {
	return texts("image", n.Image, "tag", n.Tag, "rule", n.Rule, "key", n.Key)
}

// withdrawn are the containers that run a release which the catalog has withdrawn.
func withdrawn(s status.Status) []status.ImageStatus {
	return slices.DeleteFunc(slices.Clone(s.Images), func(i status.ImageStatus) bool {
		return i.Withdrawn == nil || i.Running == nil
	})
}

func withdrawnOf(i status.ImageStatus) record {
	return texts(
		"podManifest", i.PodManifest, "container", i.Container, "image", i.Image, "tag", i.Running.Tag,
		"digest", i.Running.Digest.String(), "reason", i.Withdrawn.Reason, "to", i.Withdrawn.To,
	)
}

// holdsOf lists the holds of pod manifests, and of images that are followed without one.
func holdsOf(s status.Status) []record {
	holds := []record{}
	add := func(podManifest, image string, all []status.Hold) {
		for _, h := range all[:min(len(all), maxListed+1-len(holds))] {
			hold := texts("podManifest", podManifest, "image", image, "name", h.Name, "reason", h.Reason, "by", h.By)
			holds = append(holds, with(hold, map[string]any{"until": microseconds(&h.Until)}))
		}
	}
	for _, p := range s.PodManifests {
		add(p.PodManifest, "", p.Holds)
	}
	for _, i := range s.Images {
		if i.PodManifest == "" {
			add("", i.Image, i.Holds)
		}
	}
	return holds
}

func standingHoldOf(h status.StandingHold) record {
	out := texts("repository", h.Repository, "name", h.Name, "reason", h.Reason)
	return withActor(with(out, map[string]any{"since": microseconds(h.Since), "until": microseconds(h.Until)}), h.By)
}

func failureOf(f status.Failure) record {
	return with(texts(
		"podManifest", f.PodManifest, "container", f.Container, "image", f.Image, "kind", string(f.Kind), "from", f.From,
		"to", f.To, "rolledBackTo", f.RolledBackTo, "cause", string(f.Cause), "reason", f.Reason,
	), map[string]any{"at": microseconds(f.At)})
}

func imageOf(i status.ImageStatus) record {
	running, previous, offered := nameOf(i.Running), nameOf(i.Previous), nameOf(i.Offered)
	return with(texts(
		"podManifest", i.PodManifest, "container", i.Container, "image", i.Image, "follow", i.Follow, "running", running.Tag,
		"runningDigest", running.Digest.String(), "previous", previous.Tag, "previousDigest", previous.Digest.String(),
		"offered", offered.Tag, "offeredDigest", offered.Digest.String(), "change", i.Change, "error", i.Error,
		"errorKind", string(i.ErrorKind),
	), map[string]any{"runs": i.Running != nil && i.Down == nil, "staged": i.Staged, "adopted": i.Adopted})
}

// nameOf is the zero name where there is none.
func nameOf(n *status.Named) status.Named {
	if n == nil {
		return status.Named{}
	}
	return *n
}

func sourceOf(s status.SourceStatus) record {
	return with(texts(
		"repository", s.Repository, "host", s.Host, "error", s.Error, "cause", string(s.Cause),
	), map[string]any{
		"mirror": s.Mirror, "failures": uint64(max(s.Failures, 0)), "lastSuccess": microseconds(s.LastSuccess),
		"retryAt": microseconds(s.RetryAt),
	})
}

func historyOf(e status.HistoryEntry) record {
	out := texts(
		"podManifest", e.PodManifest, "container", e.Container, "change", e.Change, "image", e.Image, "from", e.From,
		"to", e.To, "digest", e.Digest.String(), "result", string(e.Result), "cause", string(e.Cause), "reason", e.Reason,
	)
	return withActor(with(out, map[string]any{"at": microseconds(&e.At)}), e.By)
}

// withActor adds who did it. The uid is there where it is known.
func withActor(r record, a status.Actor) record {
	r = with(r, map[string]any{"by": a.Kind, "via": a.Via, "user": outside.Line(a.User, maxWord)})
	if a.UID != nil {
		r["uid"] = dbus.MakeVariant(*a.UID)
	}
	return r
}

// texts makes an element of keys and texts by turns.
func texts(pairs ...string) record {
	out := make(record, len(pairs)/2)
	for n := 0; n+1 < len(pairs); n += 2 {
		out[pairs[n]] = dbus.MakeVariant(outside.Line(pairs[n+1], maxWord))
	}
	return out
}

// with adds what is no text.
func with(r record, more map[string]any) record {
	for key, value := range more {
		r[key] = dbus.MakeVariant(value)
	}
	return r
}

// microseconds since 1970, as systemd's interfaces have times; 0: never.
func microseconds(t *time.Time) uint64 {
	if t == nil || t.UnixMicro() < 0 {
		return 0
	}
	return uint64(t.UnixMicro())
}
