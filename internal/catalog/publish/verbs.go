// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/kubic-project/image-update-agent/internal/catalog"
	"github.com/kubic-project/image-update-agent/internal/catalog/ops"
)

// Settle publishes what waits, and asks for nothing.
func Settle(context.Context, *View) (Draft, error) { return Draft{}, nil }

// Refresh sets when a channel expires; zero: never. It makes a channel that is not there where that is allowed.
func Refresh(expires time.Time) Verb {
	return func(context.Context, *View) (Draft, error) {
		return Draft{Ops: []catalog.Op{{Do: catalog.ActionRefresh, Expires: expires}}}, nil
	}
}

// Freeze has publishers refuse to add and to promote until a time; zero: the channel is not frozen any more.
func Freeze(until time.Time) Verb {
	return func(ctx context.Context, v *View) (Draft, error) {
		is, err := v.content(ctx, []string{}...)
		isAsItIs := until.Equal(is.Frozen) || until.IsZero() && !ops.IsFrozen(is.Times, v.p.now())
		if err != nil || isAsItIs {
			return Draft{}, err
		}
		return Draft{Ops: []catalog.Op{{Do: catalog.ActionFreeze, Until: until}}}, nil
	}
}

// Noted says what changes of the advisories of releases; what is nil stays.
type Noted struct {
	Note     *string
	Fixes    *[]string
	Severity *catalog.Severity
}

// Of returns an advisory with the changes; nil is none.
func (n Noted) Of(is *catalog.Advisory) *catalog.Advisory {
	if n == (Noted{}) {
		return is
	}
	out := catalog.Advisory{}
	if is != nil {
		out = *is
	}
	if n.Note != nil {
		out.Note = *n.Note
	}
	if n.Fixes != nil {
		out.Fixes = *n.Fixes
	}
	if n.Severity != nil {
		out.Severity = *n.Severity
	}
	return &out
}

// Note changes the advisories of listed releases: of each under all tags that the channel lists for its digest.
func Note(words []string, what Noted) Verb {
	return func(ctx context.Context, v *View) (Draft, error) {
		selected, err := v.tagged(ctx, words, false)
		if err != nil {
			return Draft{}, err
		}
		pages, err := v.Pages(ctx, imagesOf(catalog.Op{Changes: selected})...)
		if err != nil {
			return Draft{}, err
		}
		selected = withSameDigest(selected, pages)
		for n, c := range selected {
			selected[n].Release = catalog.Release{
				Tag: c.Release.Tag, Digest: c.Release.Digest, Advisory: what.Of(c.Release.Advisory),
			}
		}
		return v.ask(ctx, ops.Want{Do: catalog.ActionNote, Changes: selected})
	}
}

// Ask asks for these changes.
func Ask(w ops.Want) Verb {
	return func(ctx context.Context, v *View) (Draft, error) {
		w.Changes = slices.Clone(w.Changes)
		return v.ask(ctx, w)
	}
}

// ask drafts what somebody wants.
func (v *View) ask(ctx context.Context, w ops.Want) (Draft, error) {
	hasSet := slices.ContainsFunc(w.Changes, func(c catalog.Change) bool { return c.Release.Set != "" })
	images := imagesOf(catalog.Op{Changes: w.Changes})
	if w.Do == catalog.ActionAdd && hasSet {
		images = nil
	}
	state, err := v.content(ctx, images...)
	if err == nil && images == nil {
		w.Former, err = v.former(ctx, w.Changes, state)
	}
	if err != nil {
		return Draft{}, err
	}
	asked, err := ops.Ask(state, v.Channel, w)
	if refused, ok := errors.AsType[*ops.Refused](err); ok {
		kind := KindWithdrawn
		if refused.Again {
			kind = KindAgain
		}
		return Draft{}, refuse(kind, refused.Change.Member(), "%s", refused.Why)
	}
	if err != nil {
		return Draft{}, refuse(KindDigest, v.Channel, "%v", err)
	}
	return Draft{Ops: asked.Ops, Outcomes: outcomesOf(asked.Notes)}, nil
}

// former returns, by set, the members of sets that are added to and that no page names: all their releases are in later
// sets now, and only the log still has the earlier ones. A set has ended, and begins anew, when no page lists any
// member of it.
func (v *View) former(ctx context.Context, changes []catalog.Change, state ops.State) (map[string][]string, error) {
	out := map[string][]string{}
	for _, c := range changes {
		out[c.Release.Set] = nil
	}
	delete(out, "")
	for _, name := range setNames(state.Pages) {
		delete(out, name)
	}
	if len(out) == 0 {
		return nil, nil
	}
	log, err := v.p.Log(ctx, v.Version)
	if err != nil {
		return nil, err
	}
	for _, op := range v.Pending {
		log = append(log, catalog.NewEntry(op, 0, time.Time{}))
	}
	isListed := map[string]bool{} // by set
	for _, e := range log {
		for _, c := range e.Changes {
			set := c.Release.Set
			members, isAsked := out[set]
			if !isAsked || e.Do == catalog.ActionWithdraw {
				continue
			}
			is := ops.Find(state.Pages[c.Image], c.Release.Tag)
			if is != nil && is.Digest != c.Release.Digest {
				continue
			}
			out[set], isListed[set] = append(members, c.Member()), isListed[set] || is != nil
		}
	}
	for set := range out {
		if !isListed[set] {
			delete(out, set)
		}
	}
	return out, nil
}
