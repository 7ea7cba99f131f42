// SPDX-License-Identifier: Apache-2.0

// Package ops decides what the ops of a channel make of a version. It is pure.
//
// # Words
//
//   - A State is the content of a channel. Fold folds ops into it.
//   - The turn of an op orders it: the number is above that of each op that its publisher knew. No clock orders ops.
//   - Again marks an op that offers withdrawn releases on purpose, and Calm one that counts while a channel is frozen.
//   - A Want is what a publisher asks for; a Draft has the ops of it.
//
// # Laws
//
//   - A withdrawal absorbs: only an op with Again that knew it offers the release again, in whatever order they come.
//   - A frozen channel takes no op that adds or promotes, unless that op is calm.
//   - The order of ops and the number of calls do not matter, and folding twice is folding once.
//   - An advisory that somebody has noted is replaced only by a later note, whatever else becomes of the release.
//   - A digest that is listed is never replaced.
package ops

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/internal/catalog"
)

// Ahead is how far the clock of who asked for an op may be ahead.
const Ahead = 24 * time.Hour

// Refusal returns why an op does not count in a channel now; "": it counts. A freeze refuses what was asked for by
// somebody who knew it, or could have: an op of the same turn was asked for at the same time.
func Refusal(t catalog.Times, op catalog.Op, now time.Time) string {
	switch {
	case op.At().After(now.Add(Ahead)):
		return fmt.Sprintf("asked for at %s, more than a day ahead", op.At().Format(time.RFC3339))
	case op.Turn > t.Turn+catalog.MaxJump:
		return fmt.Sprintf("its turn is %d, and the channel's last one %d", op.Turn, t.Turn)
	case Brings(op) && IsFrozen(t, now) && op.Turn > t.Freeze.Turn:
		return "the channel is frozen until " + t.Frozen.Format(time.RFC3339)
	}
	return ""
}

// Brings reports whether an op needs a channel that is not frozen.
func Brings(op catalog.Op) bool {
	return (op.Do == catalog.ActionAdd || op.Do == catalog.ActionPromote) && !op.Calm
}

// IsFrozen reports whether a channel is frozen now.
func IsFrozen(t catalog.Times, now time.Time) bool { return now.Before(t.Frozen) }

// Next returns the turn of the next op of a channel that knows these pending ones.
func Next(t catalog.Times, pending ...catalog.Op) uint64 {
	last := t.Turn
	for _, op := range pending {
		last = max(last, op.Turn)
	}
	return last + 1
}

// Loss is a change of an op that a channel does not have.
type Loss struct {
	Change catalog.Change
	Why    string
	By     string // the op that is in its place; empty: it is not known
	Final  bool   // asking again does not help: it was withdrawn, or another digest is listed
}

// Lost returns the changes of an op that a channel has folded and does not have: ops that nobody knew when it was asked
// for came after it. What its page has dropped is not lost.
func Lost(s State, op catalog.Op) []Loss {
	var out []Loss
	switch {
	case op.Do == catalog.ActionRefresh && s.Refreshed.Op != op.Tag && !s.Expires.Equal(op.Expires):
		out = append(out, Loss{Why: "another publisher has set when the channel expires", By: s.Refreshed.Op})
	case op.Do == catalog.ActionFreeze && s.Freeze.Op != op.Tag && !s.Frozen.Equal(op.Until):
		out = append(out, Loss{Why: "another publisher has frozen or unfrozen the channel", By: s.Freeze.Op})
	}
	for _, c := range op.Changes {
		is := Find(s.Pages[c.Image], c.Release.Tag)
		if is == nil {
			continue
		}
		l := lost(*is, op, c)
		if l.Why != "" {
			l.Change = c
			out = append(out, l)
		}
	}
	return out
}

// lost returns why a release is not as an op asked for it.
func lost(is catalog.Release, op catalog.Op, c catalog.Change) Loss {
	switch {
	case is.Digest != c.Release.Digest:
		return Loss{Why: "listed with digest " + string(is.Digest), By: is.Op, Final: true}
	case op.Do == catalog.ActionWithdraw:
		if is.Withdrawn == nil {
			return Loss{Why: "another publisher offers it again", By: markOf(is.Again).Op}
		}
	case op.Do == catalog.ActionNote:
		if !is.Advisory.IsSame(c.Release.Advisory) {
			return Loss{Why: "another publisher has noted something else", By: notedBy(is).Op}
		}
	case is.Withdrawn != nil:
		return Loss{Why: "withdrawn meanwhile: " + is.Withdrawn.Reason, By: withdrawnBy(is).Op, Final: true}
	case c.Release.Advisory != nil && !is.Advisory.IsSame(c.Release.Advisory):
		return Loss{Why: "another publisher has noted something else", By: notedBy(is).Op, Final: true}
	case op.Do == catalog.ActionAdd:
		if c.Release.Set != "" && is.Set != c.Release.Set && is.Op == "" {
			return Loss{Why: "another publisher has put it into " + SetName(is.Set) + " at the same time", Final: true}
		}
	case is.Op != op.Tag && (is.Set != c.Release.Set || !IsSameRollout(is.Rollout, c.Release.Rollout)):
		return Loss{Why: "changed meanwhile: " + joinNotes(SetName(is.Set), rolloutNote(nil, is.Rollout)), By: is.Op}
	}
	return Loss{}
}

// SetName names a set for people.
func SetName(set string) string {
	if set == "" {
		return "no set"
	}
	return fmt.Sprintf("set %q", set)
}

// rolloutNote says what became of a rollout; "": nothing.
func rolloutNote(was, is *catalog.Rollout) string {
	switch {
	case IsSameRollout(was, is):
		return ""
	case is == nil:
		return "rollout ended: all nodes may apply it"
	case is.Paused == nil:
		return fmt.Sprintf("rollout over %d hours", is.Hours)
	case was != nil && was.Hours != is.Hours:
		return fmt.Sprintf("rollout over %d hours, paused", is.Hours)
	}
	return "rollout paused"
}

// joinNotes joins the notes that are not empty.
func joinNotes(notes ...string) string {
	return strings.Join(slices.DeleteFunc(notes, func(note string) bool { return note == "" }), "; ")
}

// IsSame reports whether nodes see no difference between releases: only the ops that changed them may differ.
func IsSame(a, b catalog.Release) bool {
	return a.Tag == b.Tag && a.Digest == b.Digest && a.Created.Equal(b.Created) && a.Set == b.Set &&
		slices.Equal(a.Members, b.Members) && IsSameRollout(a.Rollout, b.Rollout) &&
		isSameWithdrawal(a.Withdrawn, b.Withdrawn) && a.Advisory.IsSame(b.Advisory) && slices.Equal(a.Critical, b.Critical) &&
		maps.EqualFunc(a.Unknown, b.Unknown, func(x, y json.RawMessage) bool { return bytes.Equal(x, y) })
}

// IsSameRollout reports whether two rollouts are one; nil is none.
func IsSameRollout(a, b *catalog.Rollout) bool {
	if a == nil || b == nil {
		return a == b
	}
	if (a.Paused == nil) != (b.Paused == nil) || !a.From.Equal(b.From) || a.Hours != b.Hours {
		return false
	}
	return a.Paused == nil || a.Paused.At.Equal(b.Paused.At) && a.Paused.From.Equal(b.Paused.From)
}

func isSameWithdrawal(a, b *catalog.Withdrawal) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.At.Equal(b.At) && a.Reason == b.Reason && a.To == b.To
}

// First returns the first release of a page that fits; nil: none does.
func First(p catalog.Page, fits func(r catalog.Release) bool) *catalog.Release {
	at := slices.IndexFunc(p.Releases, fits)
	if at < 0 {
		return nil
	}
	return &p.Releases[at]
}

// Find returns the release of a tag; nil if the page does not list it.
func Find(p catalog.Page, tag string) *catalog.Release {
	return First(p, func(r catalog.Release) bool { return r.Tag == tag })
}

// Newest returns the newest release of a page that is offered; nil if there is none.
func Newest(p catalog.Page) *catalog.Release {
	return First(p, func(r catalog.Release) bool { return r.Withdrawn == nil })
}

// WithdrawnAs returns the withdrawn release of a page that has a tag or a digest; nil: there is none.
func WithdrawnAs(p catalog.Page, tag string, d digest.Digest) *catalog.Release {
	return First(p, func(r catalog.Release) bool { return r.Withdrawn != nil && (r.Tag == tag || r.Digest == d) })
}
