// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/google/go-containerregistry/pkg/name"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
	"github.com/kubic-project/image-update-agent/internal/registry/distspec"
	"github.com/kubic-project/image-update-agent/tags"
)

// errTorn: a page of a tag list is not there, though the one before names it.
var errTorn = errors.New("incomplete list")

// Tags lists the tags of a repository, each once; none if it does not exist. A list of which a part
// is missing is an error.
func (c *Client) Tags(ctx context.Context, repository string) ([]string, error) {
	r, err := c.repository(repository)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, listTimeout, &timeoutError{"tag list: incomplete", listTimeout})
	defer cancel()
	l := &tagList{seen: map[string]bool{}}
	err = repeat(ctx, func() error { return c.list(ctx, r, l) })
	if is := kindOf(err); errors.Is(is, release.ErrNotFound) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("%s: tag list: %w", r, is)
	}
	return l.tags, nil
}

// tagList is the part of a list that was read.
type tagList struct {
	tags  []string
	seen  map[string]bool
	bytes int
}

// list reads page after page, as the Link of each names the next.
func (c *Client) list(ctx context.Context, r name.Repository, l *tagList) error {
	bare := urlOf(r, "tags", "list")
	next, asked := distspec.TagPage(bare, pageSize, ""), map[string]bool{}
	var before []string // the page before, if it was full and without a Link
	for page := 1; next != nil; page++ {
		if page > maxPages {
			return fmt.Errorf("%w: more than %d pages", outside.ErrTooLarge, maxPages)
		}
		if asked[next.String()] {
			return fmt.Errorf("%w: page %d repeats one before", errTorn, page)
		}
		asked[next.String()] = true
		names, links, err := c.page(ctx, r, next, l)
		if (page == 1 || before != nil) && next != bare && distspec.MayRefuseSize(Status(err), page) {
			next = bare
			names, links, err = c.page(ctx, r, next, l)
		}
		switch {
		case err != nil && page > 1 && Status(err) == http.StatusNotFound:
			return fmt.Errorf("%w: page %d: 404", errTorn, page) // it says nothing about the repository
		case err != nil:
			return err
		}
		sized := next != bare && (page == 1 || before != nil)
		if next, err = distspec.NextPage(next, links); err != nil {
			return err
		}
		if next == nil && sized && len(names) == pageSize {
			next, before = guess(bare, names, before), names
		}
	}
	return nil
}

// guess returns the URL after a full page without a Link, which need not be the last one: see package registry. A
// registry that ignores where the page should begin is asked for all tags.
func guess(bare *url.URL, names, before []string) *url.URL {
	if before != nil && names[0] == before[0] {
		return bare
	}
	return distspec.TagPage(bare, pageSize, names[len(names)-1])
}

// page reads one page, and returns its names and its Link headers.
func (c *Client) page(
	ctx context.Context, r name.Repository, u *url.URL, l *tagList,
) (names, links []string, err error) {
	resp, err := c.ask(ctx, http.MethodGet, r, u, "application/json")
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	names, err = distspec.ReadTagPage(resp.Body, maxTags)
	if err != nil {
		return nil, nil, err
	}
	for _, name := range names {
		if l.seen[name] || tags.Classify(name) == tags.ClassInvalid {
			continue
		}
		l.seen[name] = true
		l.tags = append(l.tags, name)
		if l.bytes += len(name); l.bytes > maxTagList || len(l.tags) > maxTags {
			return nil, nil, fmt.Errorf("%w: more than %d tags, or %d bytes of them", outside.ErrTooLarge, maxTags, maxTagList)
		}
	}
	return names, resp.Header.Values("Link"), nil
}
