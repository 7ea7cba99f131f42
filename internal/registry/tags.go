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
	"strconv"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/distspec"
	"github.com/kubic-project/image-update-agent/internal/outside"
	"github.com/kubic-project/image-update-agent/internal/registry/transport"
	"github.com/kubic-project/image-update-agent/tags"
)

// Tags lists the tags of a repository, each once, in the order of the host.
// What is no OCI tag is left out and logged.
func (r *Registry) Tags(ctx context.Context, repository string) ([]string, error) {
	return r.TagsHaving(ctx, repository, nil)
}

// TagsHaving is Tags for one who knows tags that are there. A list without one of them is not
// whole: a proxy cache lists what it has served. So is an empty list of a mirror. The next host is
// asked then, and where no list is whole, the error comes with the tags of all of them.
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
		r.log.WarnContext(ctx, "tag list has names that are no tags", "repository", repository, "count", list.invalid)
	}
	return list.tags, nil
}

// errListTime ends a list whose pages each come in time.
var errListTime = fmt.Errorf("tag list: not whole after %s: %w", listTimeout, context.DeadlineExceeded)

// tags reads the list page after page as the distribution specification
// has it: the Link header of one names the next.
func (e endpoint) tags(ctx context.Context) (*tagList, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, listTimeout, errListTime)
	defer cancel()
	failed := func(err error) (*tagList, error) { return nil, e.failed(fmt.Errorf("tag list: %w", err)) }
	u := withQuery(e.url("tags", "list"), "n", strconv.Itoa(pageSize))
	list, asked := &tagList{seen: map[string]bool{}}, map[string]bool{}
	for page := 1; u != nil; page++ {
		if page > maxPages {
			return failed(fmt.Errorf("more than %d pages", maxPages))
		}
		asked[u.String()] = true
		header, err := e.tagPage(ctx, u, list)
		// A host may have refused the size of the page, and not the list: distribution 3
		// says 400, Quay said 413, and validators say 422. Without a size, each gives
		// pages of its own.
		if page == 1 && hasStatus(err,
			http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity) {
			u = e.url("tags", "list")
			header, err = e.tagPage(ctx, u, list)
		}
		if err != nil {
			return nil, e.notWhole(page, err)
		}
		if u, err = distspec.NextPage(u, header.Values("Link")); err != nil {
			return failed(err)
		}
		if u != nil && asked[e.withNamespace(u).String()] {
			return failed(fmt.Errorf("page %d repeats", page))
		}
	}
	return list, nil
}

// notWhole is the error of a list whose first pages came. That a later one is not there says
// nothing about the repository, and that it is refused, nothing about lists.
func (e endpoint) notWhole(page int, err error) error {
	f, is := errors.AsType[*release.SourceError](err)
	if page == 1 || !is || f.Status < http.StatusUnauthorized || f.Status > http.StatusMethodNotAllowed {
		return err
	}
	torn := *f
	torn.Err = fmt.Errorf("tag list: page %d: %d: %w", page, f.Status, release.ErrTornList)
	return &torn
}

func withQuery(u *url.URL, name, value string) *url.URL {
	query := u.Query()
	query.Set(name, value)
	u.RawQuery = query.Encode()
	return u
}

// tagPage asks for a page, and adds it to a list.
func (e endpoint) tagPage(ctx context.Context, u *url.URL, list *tagList) (http.Header, error) {
	a, err := e.ask(ctx, transport.Question{
		URL: u, Accept: "application/json", Limit: maxTagPage,
		Read: func(h http.Header, body io.Reader) error {
			if isPage(h) {
				return errPage
			}
			if err := list.read(body); err != nil {
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
	invalid int
	bytes   int // of the pages so far
}

// read reads a page as it comes, and adds it.
func (l *tagList) read(page io.Reader) error {
	names, err := distspec.ReadTagPage(countedPage{page, l}, maxTags)
	if err != nil {
		return err
	}
	return l.add(names)
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

// lacks is why the list is no evidence of what there is.
func (l *tagList) lacks(known []string, mirror bool) error {
	for _, tag := range known {
		if !l.seen[tag] {
			return fmt.Errorf("has %d tags, and not %s, which is there: a cache lists only what it has served", len(l.tags), tag)
		}
	}
	if mirror && len(l.tags) == 0 {
		return errors.New("is empty")
	}
	return nil
}

// add adds a page. A page with no tag that is new, but some that are not,
// is a host that goes in circles.
func (l *tagList) add(names []string) error {
	known := 0
	for _, tag := range names {
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
	if known > 0 && known == len(names) {
		return errors.New("page repeats")
	}
	return nil
}
