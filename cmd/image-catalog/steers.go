// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/kubic-project/image-update-agent/internal/catalog"
)

// steersOf says of each op of a log that only changes rollouts what it did to them, as "paused the rollout of". The log
// is whole, the oldest entry first: a promotion and the resuming of its rollout differ only in what came before.
func steersOf(log []catalog.Entry) map[string]string {
	out := map[string]string{}
	before := map[string]catalog.Release{}
	for _, e := range log {
		if what := steered(e, before); what != "" {
			out[e.Tag] = what + " the rollout of"
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
		case !known && what == "paused": // the log has no space for the promotion any more
		case was.Rollout == nil, was.Withdrawn != nil, was.Digest != is.Digest, was.Set != is.Set:
			return ""
		case verb != "" && verb != what:
			what = "changed"
		}
		verb = what
	}
	return verb
}

// rolloutVerb says what became of a rollout.
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
