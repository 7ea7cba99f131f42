// SPDX-License-Identifier: Apache-2.0

package record

import (
	"cmp"
	"slices"

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
