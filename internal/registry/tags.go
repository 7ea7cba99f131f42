// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
	"github.com/kubic-project/image-update-agent/internal/registry/distspec"
	"github.com/kubic-project/image-update-agent/internal/registry/transport"
	"github.com/kubic-project/image-update-agent/tags"
)

// Tags lists the tags of a repository, without duplicates, in the host's order. Invalid tags are left out and logged.
func (r *Registry) Tags(ctx context.Context, repository string) ([]string, error) {
	return r.TagsHaving(ctx, repository, nil)
}

// TagsHaving is like Tags for a caller that knows existing tags. A list without one of them is incomplete: a proxy
// cache lists only tags that it has served. An empty list of a mirror is incomplete, too. Then the next host is asked,
// and if no list is complete, the error comes with the tags of all of them.
func (r *Registry) TagsHaving(ctx context.Context, repository string, known []string) ([]string, error) {
	var partial []string
	list, err := each(ctx, r, repository, mayResolve, func(e endpoint) (*tagList, error) {
		list, err := e.tags(ctx)
		if err != nil {
			return nil, err
		}
		if err := list.lacks(known, e.mirror); err != nil {
			partial = append(partial, list.tags...)
			return nil, e.failed(fmt.Errorf("tag list: %w", err))
		}
		return list, nil
	})
	if err != nil {
		slices.Sort(partial)
		return slices.Compact(partial), err
	}
	if list.invalid > 0 {
		r.log.WarnContext(ctx, "tag list has names that are not tags", "repository", repository, "count", list.invalid)
	}
	return list.tags, nil
}

// errListTime ends a list whose pages each arrive in time.
var errListTime = fmt.Errorf("tag list: incomplete after %s: %w", listTimeout, context.DeadlineExceeded)

// tags reads the list page by page as in the distribution specification: the Link header of each page names the next
// one.
func (e endpoint) tags(ctx context.Context) (*tagList, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, listTimeout, errListTime)
	defer cancel()
	failed := func(err error) (*tagList, error) { return nil, e.failed(fmt.Errorf("tag list: %w", err)) }
	u := distspec.TagPage(e.url("tags", "list"), pageSize, "")
	list, asked := &tagList{seen: map[string]bool{}}, map[string]bool{}
	for page := 1; u != nil; page++ {
		if page > maxPages {
			return failed(fmt.Errorf("more than %d pages", maxPages))
		}
		asked[u.String()] = true
		header, err := e.tagPage(ctx, u, list)
		f, refused := errors.AsType[*release.SourceError](err)
		if refused = refused && !f.Unasked && f.RetryAt.IsZero() && distspec.MayRefuseSize(f.Status, page); refused &&
			(page == 1 || list.guessing) && !list.unsized {
			u, list.unsized = e.url("tags", "list"), true
			header, err = e.tagPage(ctx, u, list)
		}
		if err != nil {
			return nil, e.notWhole(page, err)
		}
		if u, err = distspec.NextPage(u, header.Values("Link")); err != nil {
			return failed(err)
		}
		if u == nil && (page == 1 || list.guessing) {
			u = e.guess(list)
		}
		if u != nil && asked[e.withNamespace(u).String()] {
			return failed(fmt.Errorf("page %d repeats", page))
		}
	}
	return list, nil
}

// guess returns the URL after a page without a Link; nil if it was the last one. By the distribution specification a
// page of the requested size needs no Link: go-containerregistry's registry and Nexus's groups send none. A host that
// ignores where the page should begin is asked for all tags.
func (e endpoint) guess(list *tagList) *url.URL {
	if list.unsized || list.names != pageSize {
		return nil
	}
	list.guessing = true
	if list.added == 0 {
		list.unsized = true
		return e.url("tags", "list")
	}
	return distspec.TagPage(e.url("tags", "list"), pageSize, list.last)
}

// notWhole returns the error of a list after its first page. A missing later page says nothing about the repository,
// and a refused one nothing about lists.
func (e endpoint) notWhole(page int, err error) error {
	f, is := errors.AsType[*release.SourceError](err)
	if page == 1 || !is || f.Status < http.StatusUnauthorized || f.Status > http.StatusMethodNotAllowed {
		return err
	}
	torn := *f
	torn.Err = fmt.Errorf("tag list: page %d: %d: %w", page, f.Status, release.ErrTornList)
	return &torn
}

// tagPage requests a page and adds it to a list.
func (e endpoint) tagPage(ctx context.Context, u *url.URL, list *tagList) (http.Header, error) {
	a, err := e.ask(ctx, transport.Question{
		URL: u, Accept: "application/json", Limit: maxTagPage,
		Read: func(h http.Header, body io.Reader) error {
			if isPage(h) {
				return errPage
			}
			if err := list.read(body, h.Get("Link") == ""); err != nil {
				return fmt.Errorf("tag list: %w", err)
			}
			return nil
		},
	})
	return a.Header, err
}

type tagList struct {
	tags    []string
	seen    map[string]bool
	last    string // of the pages so far
	invalid int
	bytes   int // of the pages so far

	names, added int  // of the last page
	unsized      bool // the host was asked for all tags, without a page size
	guessing     bool // the host has sent a full page without a Link
}

// read reads a page as it arrives, and adds it.
func (l *tagList) read(page io.Reader, isLast bool) error {
	names, err := distspec.ReadTagPage(countedPage{page, l}, maxTags)
	if err != nil {
		return err
	}
	return l.add(names, isLast)
}

// countedPage counts the bytes of all pages.
type countedPage struct {
	io.Reader
	list *tagList
}

func (c countedPage) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	if c.list.bytes += n; c.list.bytes > maxTagList {
		return 0, fmt.Errorf("%w: over %d bytes", outside.ErrTooLarge, maxTagList)
	}
	return n, err
}

// lacks returns why the list is incomplete.
func (l *tagList) lacks(known []string, mirror bool) error {
	for _, tag := range known {
		if !l.seen[tag] {
			return fmt.Errorf("has %d tags, but not %s, which exists: a cache lists only the tags that it has served",
				len(l.tags), tag)
		}
	}
	if mirror && len(l.tags) == 0 {
		return errors.New("is empty")
	}
	return nil
}

// add adds a page. A page with only known tags means that the host repeats its pages. But for some hosts a page begins
// with the last tag of the page before, so the last one may have this tag alone.
func (l *tagList) add(names []string, isLast bool) error {
	before, length := l.last, len(l.tags)
	known := 0
	for _, tag := range names {
		l.last = tag
		switch {
		case tags.Classify(tag) == tags.ClassInvalid:
			l.invalid++
		case l.seen[tag]:
			known++
		case len(l.tags) == maxTags:
			return fmt.Errorf("%w: over %d tags", outside.ErrTooLarge, maxTags)
		default:
			l.seen[tag] = true
			l.tags = append(l.tags, tag)
		}
	}
	l.names, l.added = len(names), len(l.tags)-length
	overlaps := isLast && len(names) == 1 && names[0] == before
	if known > 0 && known == len(names) && !overlaps && !l.guessing {
		return errors.New("page repeats")
	}
	return nil
}
