// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"time"

	"github.com/opencontainers/go-digest"
)

// Outcome is what became of one change.
type Outcome struct {
	Image   string        `json:"image"`
	Tag     string        `json:"tag"`
	Digest  digest.Digest `json:"digest"`
	Changed bool          `json:"changed"`
	// Withdrawn: the channel offers it no more; where it changed, by this request.
	Withdrawn bool   `json:"withdrawn,omitempty"`
	Skipped   bool   `json:"skipped,omitempty"` // it was asked for, and left out for the reason in Note
	Note      string `json:"note,omitempty"`
}

// Result is what became of a request.
type Result struct {
	Channel  string        `json:"channel"`
	Version  uint64        `json:"version"`
	Digest   digest.Digest `json:"digest"` // empty for a dry run
	Expires  *time.Time    `json:"expires,omitempty"`
	Changed  bool          `json:"changed"`
	Outcomes []Outcome     `json:"releases"`
	Waiting  []Waiting     `json:"waiting"`
}

// published describes the channel as it is.
func (d draft) published(outcomes []Outcome, changed bool) Result {
	out := newResult(d, outcomes, changed)
	out.Version, out.Digest = d.base.Version, d.base.Digest
	out.setExpires(d.base.Expires)
	return out
}

// planned describes the version that would come.
func (d draft) planned(outcomes []Outcome, changed bool) Result {
	if d.isEmpty() {
		return d.published(outcomes, changed)
	}
	out := newResult(d, outcomes, changed)
	out.Version = d.manifest.Version
	out.setExpires(d.manifest.Expires)
	return out
}

func (r *Result) setExpires(at time.Time) {
	if !at.IsZero() {
		r.Expires = &at
	}
}

func newResult(d draft, outcomes []Outcome, changed bool) Result {
	out := Result{Channel: d.manifest.Channel, Changed: changed, Outcomes: outcomes, Waiting: d.waiting}
	if out.Waiting == nil {
		out.Waiting = []Waiting{}
	}
	if out.Outcomes == nil {
		out.Outcomes = []Outcome{}
	}
	return out
}
