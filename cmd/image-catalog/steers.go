// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/kubic-project/image-update-agent/internal/catalog"
)

// steersOf returns what each op did that only changes rollouts, such as "paused the rollout of", by the op's tag. It
// needs the whole log, the oldest entry first: only the entries before tell a resumed rollout from a promotion.
func steersOf(log []catalog.Entry) map[string]string {
	out := map[string]string{}
	before := map[string]catalog.Release{}
	for _, e := range log {
		if what := steered(e, before); what != "" {
			out[e.Tag] = what + " the rollout of"
		}
		if e.Do == catalog.ActionNote { // it says nothing of rollouts
			continue
		}
		for _, c := range e.Changes {
			before[c.Member()] = c.Release
		}
	}
	return out
}

// steered returns the verb of an op that only changes rollouts; "": it does something else.
func steered(e catalog.Entry, before map[string]catalog.Release) string {
	if e.Do != catalog.ActionPromote {
		return ""
	}
	verb := ""
	for _, c := range e.Changes {
		was, known := before[c.Member()]
		is := c.Release
		what := rolloutVerb(was.Rollout, is.Rollout)
		switch {
		case !known && what == "paused": // the log has dropped the promotion
		case was.Rollout == nil, was.Withdrawn != nil, was.Digest != is.Digest, was.Set != is.Set:
			return ""
		}
		if verb != "" && verb != what {
			what = "changed"
		}
		verb = what
	}
	return verb
}

// rolloutVerb returns what an op did to a rollout.
func rolloutVerb(was, is *catalog.Rollout) string {
	switch {
	case is == nil:
		return "ended"
	case is.Paused != nil && (was == nil || was.Paused == nil):
		return "paused"
	case is.Paused == nil && was != nil && was.Paused != nil:
		return "resumed"
	}
	return "changed"
}
