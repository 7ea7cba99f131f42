// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"context"
	"maps"
	"slices"

	"github.com/kubic-project/image-update-agent/internal/catalog"
)

// set is a set of a channel, as far as it is known.
type set struct {
	name    string
	members map[string]*catalog.Release // by member; nil: it is known by its name only
	records map[string]bool             // members that name all others
	isCut   bool                        // there may be more, in versions that cannot be read
}

// names returns the members, sorted.
func (s set) names() []string { return slices.Sorted(maps.Keys(s.members)) }

// missing returns the members that are known by their names only.
func (s set) missing() []string {
	return slices.DeleteFunc(s.names(), func(member string) bool { return s.members[member] != nil })
}

// changes returns the members that are known, sorted, as releases of the set.
func (s set) changes() []catalog.Change {
	var out []catalog.Change
	for _, member := range s.names() {
		if r := s.members[member]; r != nil {
			image, _ := catalog.SplitMember(member)
			c := catalog.Change{Image: image, Release: *r}
			c.Release.Set, c.Release.Members = s.name, s.names()
			out = append(out, c)
		}
	}
	return out
}

// take adds the releases of a page that are in the set, and reports whether there are any.
func (s *set) take(page catalog.Page, newest map[string]catalog.Page) bool {
	has := false
	for _, r := range page.Releases {
		if r.Set != s.name {
			continue
		}
		has = true
		own := catalog.Member(page.Image, r.Tag)
		s.records[own] = s.records[own] || len(r.Members) > 0
		for _, member := range r.Members {
			if s.members[member] == nil {
				image, tag := catalog.SplitMember(member)
				s.members[member] = find(newest[image], tag)
			}
		}
		if s.members[own] == nil {
			if s.members[own] = find(newest[page.Image], r.Tag); s.members[own] == nil {
				s.members[own] = &r
			}
		}
	}
	return has
}

// isRecorded reports whether all members are known, as far as their releases name them.
func (s set) isRecorded() bool {
	return len(s.missing()) == 0 && !slices.Contains(slices.Collect(maps.Values(s.records)), false)
}

// setOf returns all members of a set that a channel has or had: those of its pages, those that their
// releases name, and what fell off, or got another set, since the set began. It reads earlier versions for it: a
// publisher that adds to a set beside another one may not name all of it.
func (p *Publisher) setOf(
	ctx context.Context, v Version, pages map[string]catalog.Page, name string,
) (set, error) {
	s := set{name: name, members: map[string]*catalog.Release{}, records: map[string]bool{}}
	has := map[string]bool{} // images whose page has a release of the set
	for image, page := range pages {
		has[image] = s.take(page, pages)
	}
	isCut, err := p.back(ctx, v, s.taking(ctx, p, v, pages, has))
	if err != nil {
		return s, err
	}
	for _, member := range s.missing() {
		image, tag := catalog.SplitMember(member)
		page := pages[image]
		page.Image = image
		if s.members[member], _, err = p.findPast(ctx, v, page, tag); err != nil {
			return s, err
		}
	}
	s.isCut = isCut && !s.isRecorded()
	return s, nil
}

// taking returns what takes in the pages of one version after the other, until one from before the set
// began: no page has it. has are the images whose page has a release of the set, in the version read last.
func (s *set) taking(
	ctx context.Context, p *Publisher, last Version, newest map[string]catalog.Page, has map[string]bool,
) func(Version) (bool, error) {
	return func(each Version) (bool, error) {
		for _, ref := range last.Pages {
			if _, listed := each.Page(ref.Image); !listed {
				has[ref.Image] = false
			}
		}
		changed := []string{}
		for _, ref := range each.Pages {
			if known, listed := last.Page(ref.Image); !listed || known != ref {
				changed = append(changed, ref.Image)
			}
		}
		last = each
		old, err := p.Pages(ctx, each, changed...)
		if err != nil {
			return false, err
		}
		for image, page := range old {
			has[image] = s.take(page, newest)
		}
		return len(s.members) == 0 || slices.Contains(slices.Collect(maps.Values(has)), true), nil
	}
}

// former returns, by set, the members of sets that are added to and that no page names: all their releases are in later
// sets now, and only the log still has the earlier ones. A set has ended, and begins anew, when no page lists any
// member of it.
func (p *Publisher) former(
	ctx context.Context, r Request, base Version, state catalog.State, waiting []catalog.Op,
) (map[string][]string, error) {
	out := map[string][]string{}
	for _, c := range r.Changes {
		out[c.Release.Set] = nil
	}
	delete(out, "")
	for _, name := range setNames(state.Pages) {
		delete(out, name)
	}
	if r.Do != catalog.ActionAdd || len(out) == 0 {
		return nil, nil
	}
	log, err := p.Log(ctx, base)
	if err != nil {
		return nil, err
	}
	for _, op := range waiting {
		log = append(log, catalog.NewEntry(op, 0))
	}
	isListed := map[string]bool{} // by set
	for _, e := range log {
		for _, c := range e.Changes {
			set := c.Release.Set
			members, isAsked := out[set]
			is := find(state.Pages[c.Image], c.Release.Tag)
			if !isAsked || e.Do == catalog.ActionWithdraw || is != nil && is.Digest != c.Release.Digest {
				continue
			}
			out[set], isListed[set] = append(members, c.Member()), isListed[set] || is != nil
		}
	}
	maps.DeleteFunc(out, func(set string, _ []string) bool { return !isListed[set] })
	return out, nil
}

// noSet returns the error for a set that a channel does not have.
func noSet(v Version, pages map[string]catalog.Page, name string) error {
	e := refuse(KindImage, name, "channel %s has no such set", v.Channel)
	e.Near = near(name, setNames(pages))
	return e
}

// setNames returns the names of all sets of pages, sorted.
func setNames(pages map[string]catalog.Page) []string {
	sets := map[string]bool{}
	for _, page := range pages {
		for _, r := range page.Releases {
			sets[r.Set] = true
		}
	}
	delete(sets, "")
	return slices.Sorted(maps.Keys(sets))
}
