// SPDX-License-Identifier: Apache-2.0

package record

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
)

// maxHistory limits the entries of the history.
const maxHistory = 50

// History has the results of the last applies, pickups and rollbacks, the newest first.
type History []status.HistoryEntry

// Add adds entries, and removes the oldest beyond maxHistory.
func (h *History) Add(entries []status.HistoryEntry) {
	all := slices.Concat(entries, *h)
	for n := range entries {
		all[n].Reason = outside.Text(all[n].Reason)
	}
	*h = all.Cut()
}

// Cut returns the newest maxHistory entries.
func (h History) Cut() History { return h[:min(len(h), maxHistory)] }

// LastFailure returns the last failure of a pod manifest in the history; false if there is none.
func (h History) LastFailure(file string) (status.HistoryEntry, bool) {
	for _, e := range h {
		if e.PodManifest == file && e.Result == status.ResultFailed {
			return e, true
		}
	}
	return status.HistoryEntry{}, false
}

// NameOf returns the best name of a digest: its release's, else the digest.
func (r *Record) NameOf(repository string, d digest.Digest) string {
	return cmp.Or(r.Releases[release.Key(repository, d)].Name(), d.String())
}

// Replacing returns the override with the names of the releases that it replaces, by place.
func (o Override) Replacing(names map[string]string) Override {
	images := make(map[string]PinnedImage, len(o.Images))
	for place, at := range o.Images {
		at.Replaces = names[place]
		images[place] = at
	}
	o.Images = images
	return o
}

// NoteRunning records the first digest of each container. Later ones are recorded after their health check, see
// NoteHealthy. keep is the number of rollback targets.
func (r *Record) NoteRunning(pods map[string]PodInUse, keep int) {
	for file, p := range pods {
		for _, i := range p.Images {
			key := GoodKey(file, i.Container)
			g, known := r.Good[key]
			isNew := !known && !i.Restarts || known && r.IsGood(g, i.Repository, i.Running, i.Config)
			if i.Repository != "" && i.Running != "" && i.RunsWell && isNew {
				r.Good.Set(key, Good{
					Repository: i.Repository, Running: i.Running, PickedUp: g.PickedUp,
					Before: g.targets(i.Repository, i.Running, keep),
				})
			}
		}
	}
}

// Healthy is an image that passed its health check in a container.
type Healthy struct {
	Container string
	Place     string // in the pod manifest: "container velum"
	release.Pin
	Config digest.Digest // its image id
}

// NoteHealthy records the releases that passed a pod's health check. The previous releases of its containers become
// their rollback targets. pickedUp: kubelet started it without an approval.
func (r *Record) NoteHealthy(file string, healthy []Healthy, pickedUp bool, keep int) {
	for _, p := range healthy {
		key := GoodKey(file, p.Container)
		g := r.Good[key]
		if r.IsGood(g, p.Repository, p.Digest, p.Config) {
			continue
		}
		r.Good.Set(key, Good{
			Repository: p.Repository, Running: p.Digest, PickedUp: pickedUp, Before: g.targets(p.Repository, p.Digest, keep),
		})
	}
}

// HasTarget reports whether a container may have a rollback target: a known good release other than the running one.
func (r *Record) HasTarget(file, container string, running digest.Digest) bool {
	g := r.Good[GoodKey(file, container)]
	return len(g.Before) > 0 || g.Running != "" && g.Running != running
}

// IsGood reports whether a container runs a known good release. The digests of one image differ if their indexes differ
// in other platforms.
func (r *Record) IsGood(g Good, repository string, running, config digest.Digest) bool {
	if g.Repository != repository || g.Running == "" {
		return false
	}
	known := r.Releases[release.Key(g.Repository, g.Running)].Config
	return g.Running == running || known != "" && known == config
}

// targets returns the rollback targets for the running release, at most keep of them.
func (g Good) targets(repository string, running digest.Digest, keep int) []release.Pin {
	var out []release.Pin
	for _, p := range append([]release.Pin{{Repository: g.Repository, Digest: g.Running}}, g.Before...) {
		if p.Digest != "" && p != (release.Pin{Repository: repository, Digest: running}) && len(out) < keep {
			out = append(out, p)
		}
	}
	return out
}

// BegunSet is a set whose pods restart one after another: all of them, or the restarted ones are rolled back. It is
// recorded before the first restart, and ends when all pods run the set, or none does.
type BegunSet struct {
	At   time.Time         `json:"at"`
	By   status.Actor      `json:"by,omitzero"`
	Pods map[string]SetPod `json:"pods"` // by pod manifest
}

// SetPod is a pod of a set.
type SetPod struct {
	// To are the wanted digests of the set, by place ("container velum").
	To map[string]digest.Digest `json:"to"`
	// Before are the previous good releases, by container; empty if none is known.
	Before map[string]release.Pin `json:"before,omitempty"`
}

// SetOf returns the begun set of a pod manifest; "" if there is none.
func (r *Record) SetOf(file string) string {
	for name, s := range r.Sets {
		if _, is := s.Pods[file]; is {
			return name
		}
	}
	return ""
}

// BeforeSets returns the releases that ran before the begun sets.
func (r *Record) BeforeSets() []release.Pin {
	var out []release.Pin
	for _, s := range r.Sets {
		for _, pod := range s.Pods {
			out = slices.AppendSeq(out, maps.Values(pod.Before))
		}
	}
	return out
}

// DropTarget removes a release from the rollback targets of a container.
func (r *Record) DropTarget(file, container string, target release.Pin) {
	key := GoodKey(file, container)
	g, known := r.Good[key]
	if !known {
		return
	}
	g.Before = slices.DeleteFunc(slices.Clone(g.Before), func(p release.Pin) bool { return p == target })
	r.Good.Set(key, g)
}
