// SPDX-License-Identifier: Apache-2.0

package agenttest

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/kubic-project/image-update-agent/agent/catalog"
	"github.com/kubic-project/image-update-agent/agent/release"
	format "github.com/kubic-project/image-update-agent/internal/catalog"
)

// CatalogName is the name of a Catalog's listing.
const CatalogName = "registry.test/catalog:prod"

// Catalog is a catalog.Channel in memory. Safe for concurrent use.
type Catalog struct {
	mu        sync.Mutex
	published catalog.Listing
	read      catalog.Listing
	fail      error
	asked     int
}

var _ catalog.Channel = (*Catalog)(nil)

// NewCatalog returns a catalog without a published version.
func NewCatalog() *Catalog {
	return &Catalog{read: catalog.Listing{Catalog: CatalogName}, published: catalog.Listing{Catalog: CatalogName}}
}

// Publish publishes the next version, with new releases of a repository before the existing ones.
func (c *Catalog) Publish(repository string, releases ...format.Release) {
	c.change(func(l *catalog.Listing) {
		l.Images[repository] = append(slices.Clone(releases), l.Images[repository]...)
	})
}

// Withdraw publishes the next version with a withdrawn release.
func (c *Catalog) Withdraw(rel release.Release, reason, to string) {
	c.change(func(l *catalog.Listing) {
		releases := slices.Clone(l.Images[rel.Repository])
		for n := range releases {
			if releases[n].Digest == rel.Digest {
				releases[n].Withdrawn = &format.Withdrawal{Reason: reason, To: to}
			}
		}
		l.Images[rel.Repository] = releases
	})
}

// Update publishes the next version with a changed entry of a release.
func (c *Catalog) Update(rel release.Release, edit func(*format.Release)) {
	c.change(func(l *catalog.Listing) {
		releases := slices.Clone(l.Images[rel.Repository])
		for n := range releases {
			if releases[n].Digest == rel.Digest {
				releases[n].Members = nil
				edit(&releases[n])
			}
		}
		l.Images[rel.Repository] = releases
	})
}

// Expire publishes the next version with an expiry time.
func (c *Catalog) Expire(at time.Time) { c.change(func(l *catalog.Listing) { l.Expires = at }) }

func (c *Catalog) change(f func(*catalog.Listing)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	next := c.published
	if next.Images = maps.Clone(next.Images); next.Images == nil {
		next.Images = map[string][]format.Release{}
	}
	f(&next)
	next.Version++
	next.By = release.Resolved{Host: Host}
	c.published = next
}

// Fail makes each read fail; nil ends it.
func (c *Catalog) Fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fail = err
}

// Asked counts the reads since the last call.
func (c *Catalog) Asked() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.asked
	c.asked = 0
	return n
}

// Refresh implements catalog.Channel.
func (c *Catalog) Refresh(context.Context, []string) (catalog.Listing, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked++
	if c.fail != nil {
		return c.read, c.fail
	}
	c.read = c.published
	return c.read, nil
}

// Last implements catalog.Channel.
func (c *Catalog) Last(context.Context) catalog.Listing {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.read
}

// Forget implements catalog.Channel.
func (c *Catalog) Forget(context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.read = catalog.Listing{Catalog: CatalogName}
	return nil
}

// ListedAs returns a release as a catalog lists it.
func ListedAs(rel release.Release) format.Release {
	return format.Release{Tag: rel.Name(), Digest: rel.Digest, Created: rel.Created}
}
