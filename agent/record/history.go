// SPDX-License-Identifier: Apache-2.0

package record

import (
	"cmp"
	"slices"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/outside"
)

// maxHistory bounds the entries of the history.
const maxHistory = 50

// History is what became of the last applies, adoptions and rollbacks, the newest first.
type History []status.HistoryEntry

// Add adds entries, and removes the oldest beyond maxHistory.
func (h *History) Add(entries []status.HistoryEntry) {
	all := slices.Concat(entries, *h)
	for n := range entries {
		all[n].Reason = outside.Text(all[n].Reason)
	}
	*h = all[:min(len(all), maxHistory)]
}

// LastFailure returns the last entry of a pod manifest that is a failure; false: there is none.
func (h History) LastFailure(file string) (status.HistoryEntry, bool) {
	for _, e := range h {
		if e.PodManifest == file && e.Result == status.ResultFailed {
			return e, true
		}
	}
	return status.HistoryEntry{}, false
}

// NameOf returns the best name of a digest: that of its release, else the digest.
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
