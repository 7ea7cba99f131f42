// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/internal/catalog"
)

// Outcome is the result of one change.
type Outcome struct {
	Image   string        `json:"image"`
	Tag     string        `json:"tag"`
	Digest  digest.Digest `json:"digest"`
	Changed bool          `json:"changed"`
	// Withdrawn: the channel does not offer it any more. If Changed, this request withdrew it.
	Withdrawn bool   `json:"withdrawn,omitempty"`
	Skipped   bool   `json:"skipped,omitempty"` // left out for the reason in Note
	Note      string `json:"note,omitempty"`
	// Steered: the channel offered it before, and only its set or its rollout changed.
	Steered bool `json:"-"`
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
	Waiting  []Waiting     `json:"waiting"`
}

// published describes the channel as it is.
func (d draft) published(outcomes []Outcome, changed bool) Result {
	out := newResult(d, outcomes, changed)
	out.Version, out.Digest = d.base.Version, d.base.Digest
	out.setTimes(d.base.Manifest)
	return out
}

// planned describes the version that would come.
func (d draft) planned(outcomes []Outcome, changed bool) Result {
	if d.isEmpty() {
		return d.published(outcomes, changed)
	}
	out := newResult(d, outcomes, changed)
	out.Version = d.manifest.Version
	out.setTimes(d.manifest)
	return out
}

func (r *Result) setTimes(m catalog.Manifest) {
	if !m.Expires.IsZero() {
		r.Expires = &m.Expires
	}
	if !m.Frozen.IsZero() {
		r.Frozen = &m.Frozen
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
