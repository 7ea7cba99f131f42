// SPDX-License-Identifier: Apache-2.0

package source

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// maxReadings bounds how often a tag is read in one round until two readings in
// a row agree.
const maxReadings = 4

// result is what a round has found for a question.
type result struct {
	offer     Offer
	err       error
	by        release.Resolved // who answered
	confirmed bool             // all that is new in it was read twice, or nothing is
}

// failed tells no answer from one that leaves nothing to offer.
func (r result) failed() bool {
	return r.err != nil && !errors.Is(r.err, release.ErrNotFound) && !errors.Is(r.err, release.ErrPlatform)
}

// ask puts a question.
func (i *Round) ask(ctx context.Context, q release.Question) {
	i.asker.Progress.Report(status.Progress{Reference: q.String(), Phase: "asking"})
	offer, err := i.answer(ctx, q)
	if ctx.Err() != nil { // nobody's answer, and nobody's failure
		i.late[q.Repository] = true
		delete(i.results, q)
		return
	}
	delete(i.late, q.Repository)
	i.results[q] = result{offer: offer, err: err, by: i.last, confirmed: true}
}

// confirm reads what is new to the node a second time. Registries show digests
// that are gone seconds later: where OBS cannot delete a tag it moves it to a
// mangled manifest first, and mirrors swap their tags one by one.
func (i *Round) confirm(ctx context.Context) {
	settled := map[release.Reference]bool{}
	for range maxReadings - 1 {
		fresh := i.fresh(settled)
		if len(fresh) == 0 || i.pause(ctx, fresh) != nil {
			break
		}
		moved := map[string]bool{}
		for _, ref := range fresh {
			was := i.heads[ref].Digest
			var again head
			again.Resolved, again.err = i.asker.resolve(ctx, ref)
			if again.err != nil && ctx.Err() != nil {
				break
			}
			if again.Digest == was {
				settled[ref] = true
				continue
			}
			i.heads[ref] = again
			moved[ref.Repository] = true
		}
		for _, q := range i.questions() {
			if moved[q.Repository] {
				i.ask(ctx, q)
			}
		}
	}
	for _, ref := range i.fresh(settled) {
		i.unsettled(ref)
	}
	i.unsettleOthers()
}

// unsettleOthers keeps what was passed over, and so read once, from being offered
// should the rules change.
func (i *Round) unsettleOthers() {
	if i.asker.Policy.ConfirmAfter <= 0 {
		return
	}
	for q, r := range i.results {
		for n, c := range r.offer.Newer {
			if c.Tag != r.offer.Newest.Tag && !isOffered(i.asker.Record.Offers[q.String()], c.Release) {
				r.offer.Newer[n].Settled = false
			}
		}
	}
}

// fresh are the tags whose digests are offered, and new: other ones than the last
// answer, or, without any, than the node has; and not read twice yet. Sorted.
func (i *Round) fresh(settled map[release.Reference]bool) []release.Reference {
	if i.asker.Policy.ConfirmAfter <= 0 {
		return nil
	}
	out := map[release.Reference]bool{}
	for q, r := range i.results {
		if r.err != nil {
			continue
		}
		last, ok := i.asker.Record.Offers[q.String()]
		for _, o := range []release.Release{r.offer.Follow, r.offer.Newest} {
			ref := release.Reference{Repository: o.Repository, Tag: o.Tag}
			if (ok || !i.held[o.Digest]) && !settled[ref] && !isOffered(last, o) {
				out[ref] = true
			}
		}
	}
	return slices.SortedFunc(
		maps.Keys(out), func(x, y release.Reference) int { return cmp.Compare(x.String(), y.String()) },
	)
}

func isOffered(last record.Answer, r release.Release) bool {
	for _, o := range []release.Release{last.Follow, last.Newest} {
		if o.Tag == r.Tag && o.Digest == r.Digest {
			return true
		}
	}
	return slices.ContainsFunc(last.Newer, func(c record.Candidate) bool {
		return c.Settled && c.Tag == r.Tag && c.Digest == r.Digest
	})
}

// unsettled takes back what a tag seemed to name.
func (i *Round) unsettled(ref release.Reference) {
	for q, r := range i.results {
		follows := q.Repository == ref.Repository && r.offer.Follow.Tag == ref.Tag
		switch {
		case q.Repository != ref.Repository || (!follows && r.offer.Newest.Tag != ref.Tag):
			continue
		case follows:
			r.err = fmt.Errorf("%s: named another digest at each of %d readings", ref, maxReadings)
		default:
			n := slices.IndexFunc(r.offer.Newer, func(c record.Candidate) bool { return c.Tag == ref.Tag })
			text := fmt.Sprintf("named another digest at each of %d readings", maxReadings)
			r.offer.Newer[n].No, r.offer.Newer[n].Settled = &policy.Refusal{
				Tag: ref.Tag, Rule: policy.RuleConfirm, Reason: text,
			}, false
			r.offer.Newest = r.offer.Follow
		}
		r.confirmed = false
		i.results[q] = r
	}
}

// pause waits before a second reading. What it has waited before it was interrupted
// counts.
func (i *Round) pause(ctx context.Context, refs []release.Reference) error {
	a := i.asker
	if i.again.IsZero() {
		i.again = a.Now().Add(a.Policy.ConfirmAfter)
	}
	d := min(i.again.Sub(a.Now()), a.Policy.ConfirmAfter)
	a.Log.Info("new digests are read again", "tags", len(refs), "after", d)
	a.Progress.Report(status.Progress{Reference: refs[0].String(), Phase: "confirming"})
	defer a.Progress.Heartbeat()()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		i.again = time.Time{}
		return nil
	}
}
