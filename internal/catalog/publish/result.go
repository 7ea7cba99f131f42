// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/internal/catalog"
	"github.com/kubic-project/image-update-agent/internal/catalog/ops"
)

// Outcome is the result of one change.
type Outcome struct {
	Image   string        `json:"image"`
	Tag     string        `json:"tag"`
	Digest  digest.Digest `json:"digest"`
	Changed bool          `json:"changed"`
	// Withdrawn: the channel does not offer it any more. If Changed, this request withdrew it, or noted something of it.
	Withdrawn bool   `json:"withdrawn,omitempty"`
	Skipped   bool   `json:"skipped,omitempty"` // left out for the reason in Note
	Note      string `json:"note,omitempty"`
	// Steered: the channel offered it before, and only its set, its rollout or its advisory changed.
	Steered bool `json:"-"`
}

// Other is an op that is in the version, and that the request did not ask for.
type Other struct {
	Op       string         `json:"op"`
	Do       catalog.Action `json:"do"`
	By       string         `json:"by,omitempty"`
	Run      string         `json:"run,omitempty"` // URL of the CI job
	At       time.Time      `json:"at"`
	Reason   string         `json:"reason,omitempty"`
	Keys     []string       `json:"keys,omitempty"` // fingerprints of those that signed it
	Releases []string       `json:"releases,omitempty"`
}

// othersOf are those of a log's entries that are not of these ops.
func othersOf(log []catalog.Entry, own map[string]bool) []Other {
	out := []Other{}
	for _, e := range log {
		if own[e.Tag] {
			continue
		}
		o := Other{Op: e.Tag, Do: e.Do, By: e.By, Run: e.Run, At: e.At, Reason: e.Reason, Keys: e.Keys}
		if len(o.Keys) == 0 && e.Key != "" {
			o.Keys = []string{e.Key}
		}
		for _, c := range e.Changes {
			o.Releases = append(o.Releases, c.Member())
		}
		out = append(out, o)
	}
	return out
}

// Result is the result of a request.
type Result struct {
	Channel  string        `json:"channel"`
	Version  uint64        `json:"version"`
	Digest   digest.Digest `json:"digest"` // empty for a dry run
	Expires  *time.Time    `json:"expires,omitempty"`
	Frozen   *time.Time    `json:"frozen,omitempty"` // until then
	Changed  bool          `json:"changed"`
	Outcomes []Outcome     `json:"releases"`
	// Others are what others asked for, and what came into the channel with this request, or while it was made.
	Others  []Other   `json:"others"`
	Waiting []Waiting `json:"waiting"`
}

// at returns the result for a version of the channel.
func (r Result) at(v Version) Result {
	r.Version, r.Digest = v.Version, v.Digest
	r.setTimes(v.Manifest)
	return r.whole()
}

// whole returns the result with lists for programs.
func (r Result) whole() Result {
	if r.Waiting == nil {
		r.Waiting = []Waiting{}
	}
	if r.Outcomes == nil {
		r.Outcomes = []Outcome{}
	}
	if r.Others == nil {
		r.Others = []Other{}
	}
	return r
}

func (r *Result) setTimes(m catalog.Manifest) {
	if !m.Expires.IsZero() {
		r.Expires = &m.Expires
	}
	if !m.Frozen.IsZero() {
		r.Frozen = &m.Frozen
	}
}

// outcomesOf returns the outcomes of notes.
func outcomesOf(notes []ops.Note) []Outcome {
	out := make([]Outcome, 0, len(notes))
	for _, n := range notes {
		out = append(out, Outcome{
			Image: n.Image, Tag: n.Tag, Digest: n.Digest, Note: n.Note,
			Changed: n.Changed, Withdrawn: n.Withdrawn, Steered: n.Steered,
		})
	}
	return out
}
