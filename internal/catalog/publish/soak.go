// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"context"
	"fmt"
	"time"

	"github.com/kubic-project/image-update-agent/internal/catalog"
)

// soak says which releases a channel has offered long enough. The zero value says that all are.
type soak struct {
	since  map[string]time.Time // by member
	begins time.Time            // of the log: what it does not name was offered before
	until  time.Time            // the latest time to be offered since; zero: any is
	span   time.Duration
}

// soakOf reads since when a channel offers its releases, if that counts.
func (p *Publisher) soakOf(ctx context.Context, v Version, span time.Duration) (soak, error) {
	if span <= 0 {
		return soak{}, nil
	}
	log, err := p.Log(ctx, v)
	s := soak{since: standing(log), begins: p.now(), until: p.now().Add(-span), span: span}
	if len(log) > 0 {
		s.begins = log[0].At
	}
	return s, err
}

// lacks says that a channel has not offered a release long enough; "": it has.
func (s soak) lacks(v Version, c catalog.Change) string {
	since, ok := s.since[c.Member()]
	if !ok {
		since = s.begins
	}
	if s.until.IsZero() || !since.After(s.until) {
		return ""
	}
	return fmt.Sprintf("channel %s has offered it since %s only, want %g hours",
		v.Channel, since.Format(time.RFC3339), s.span.Hours())
}

// newest returns the newest release of a page that is offered long enough; nil if there is none.
func (s soak) newest(page catalog.Page) *catalog.Release {
	for n, r := range page.Releases {
		if r.Withdrawn == nil && s.lacks(Version{}, catalog.Change{Image: page.Image, Release: r}) == "" {
			return &page.Releases[n]
		}
	}
	return nil
}
