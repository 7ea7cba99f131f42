// SPDX-License-Identifier: Apache-2.0

package statuspage

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/kubic-project/image-update-agent/agent/catalog"
	format "github.com/kubic-project/image-update-agent/internal/catalog"
	"github.com/kubic-project/image-update-agent/internal/face/terminal"
)

// CatalogView is a verified catalog as programs get it.
type CatalogView struct {
	Catalog string        `json:"catalog"` // repository:channel
	Version uint64        `json:"version"` // 0: none was verified yet
	Digest  string        `json:"digest"`
	Created *time.Time    `json:"created"`
	Expires *time.Time    `json:"expires"` // null: never
	Images  []ListedImage `json:"images"`  // of this node that it lists
}

// ListedImage is an image of this node that the catalog lists.
type ListedImage struct {
	Image    string          `json:"image"`
	Releases []ListedRelease `json:"releases"` // the newest first
}

// ListedRelease is a release as the catalog lists it.
type ListedRelease struct {
	Tag       string              `json:"tag"`
	Digest    string              `json:"digest"`
	Created   *time.Time          `json:"created"`
	Set       string              `json:"set"`
	RolloutAt *time.Time          `json:"rolloutAt"` // of this node; null: at once, or paused
	Paused    bool                `json:"paused"`    // the publisher paused the rollout
	Withdrawn *catalog.Withdrawal `json:"withdrawn"`
	Critical  string              `json:"critical"` // what this agent does not know and must not ignore
}

// NewCatalogView returns the view of a listing; rolloutTime is that of this node.
func NewCatalogView(l catalog.Listing, rolloutTime func(format.Release) time.Time) CatalogView {
	out := CatalogView{
		Catalog: l.Catalog, Version: l.Version, Digest: l.Digest.String(), Created: orNull(l.Created),
		Expires: orNull(l.Expires), Images: []ListedImage{},
	}
	for _, image := range slices.Sorted(maps.Keys(l.Images)) {
		releases := []ListedRelease{}
		for _, r := range l.Images[image] {
			shown := ListedRelease{
				Tag: r.Tag, Digest: r.Digest.String(), Created: orNull(r.Created), Set: r.Set,
				Withdrawn: catalog.WithdrawalOf(r.Withdrawn), Critical: r.UnknownCritical(), Paused: r.IsPaused(),
			}
			if !r.IsPaused() {
				shown.RolloutAt = orNull(rolloutTime(r))
			}
			releases = append(releases, shown)
		}
		out.Images = append(out.Images, ListedImage{image, releases})
	}
	return out
}

func orNull(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

// Catalog writes what a verified catalog lists.
func Catalog(p *terminal.Page, c CatalogView) error {
	if c.Version == 0 {
		p.Line(c.Catalog + ": no version was verified yet; run image-update-agent check")
		return p.Flush()
	}
	p.Item("Catalog:     ", fmt.Sprintf("%s version %d, %s", c.Catalog, c.Version, c.Digest))
	expires := "never"
	if c.Expires != nil {
		expires = p.Next(*c.Expires)
	}
	p.Item("Expires:     ", expires)
	for _, image := range c.Images {
		p.Line("\n" + image.Image)
		rows := [][]string{}
		for _, r := range image.Releases {
			rows = append(rows, []string{"  " + r.Tag, r.Set, marksOf(p, r)})
		}
		p.Rows(rows)
	}
	if len(c.Images) == 0 {
		p.Line("\nThe catalog lists none of this node's images.")
	}
	return p.Flush()
}

// marksOf says why a release is not offered, or not yet automatically.
func marksOf(p *terminal.Page, r ListedRelease) string {
	switch {
	case r.Withdrawn != nil:
		return "withdrawn: " + r.Withdrawn.String()
	case r.Critical != "":
		return "not offered: this agent does not support " + r.Critical
	case r.Paused:
		return "the publisher paused its rollout"
	case r.RolloutAt != nil:
		return "rolls out to this node at " + p.Next(*r.RolloutAt)
	default:
		return ""
	}
}
