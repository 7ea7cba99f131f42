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

// NoteHistory adds entries to the history, and removes the oldest beyond maxHistory.
func (r *Record) NoteHistory(entries []status.HistoryEntry) {
	all := slices.Concat(entries, r.History)
	for n := range entries {
		all[n].Reason = outside.Text(all[n].Reason)
	}
	r.History = all[:min(len(all), maxHistory)]
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
