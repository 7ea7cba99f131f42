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
	"github.com/kubic-project/image-update-agent/internal/registry/distspec"
	"github.com/kubic-project/image-update-agent/internal/registry/transport"
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
	list, err := each(ctx, r, repository, mayResolve, func(e endpoint) (*distspec.TagList, error) {
		list, err := e.tags(ctx)
		if err != nil {
			return nil, err
		}
		if err := lacks(list, known, e.mirror); err != nil {
			partial = append(partial, list.Tags...)
			return nil, e.failed(fmt.Errorf("tag list: %w", err))
		}
		return list, nil
	})
	if err != nil {
		slices.Sort(partial)
		return slices.Compact(partial), err
	}
	if list.Invalid > 0 {
		r.log.WarnContext(ctx, "tag list has names that are not tags", "repository", repository, "count", list.Invalid)
	}
	return list.Tags, nil
}

// errListTime ends a list whose pages each arrive in time.
var errListTime = fmt.Errorf("tag list: incomplete after %s: %w", listTimeout, context.DeadlineExceeded)

// tags reads the list of all pages.
func (e endpoint) tags(ctx context.Context) (*distspec.TagList, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, listTimeout, errListTime)
	defer cancel()
	list, err := distspec.Lister{
		PageSize: pageSize, MaxPages: maxPages, MaxTags: maxTags, MaxBytes: maxTagList, Status: statusOfPage,
		Get: func(page *url.URL, read func(http.Header, io.Reader) error) (http.Header, error) {
			a, err := e.ask(ctx, transport.Question{
				URL: page, Accept: "application/json", Limit: maxTagPage,
				Read: func(h http.Header, body io.Reader) error {
					if isPage(h) {
						return errPage
					}
					if err := read(h, body); err != nil {
						return fmt.Errorf("tag list: %w", err)
					}
					return nil
				},
			})
			return a.Header, err
		},
	}.Read(e.url("tags", "list"))
	if err == nil {
		return list, nil
	}
	if f, is := errors.AsType[*release.SourceError](err); is {
		return nil, notWhole(list.Pages, f)
	}
	return nil, e.failed(fmt.Errorf("tag list: %w", err))
}

// statusOfPage returns the status of an answer; 0 if there was none, or if it is about the number of requests.
func statusOfPage(err error) int {
	if f, is := errors.AsType[*release.SourceError](err); is && !f.Unasked && f.RetryAt.IsZero() {
		return f.Status
	}
	return 0
}

// notWhole returns the error of a list whose page failed. A missing later page says nothing about the repository, and a
// refused one nothing about lists.
func notWhole(page int, f *release.SourceError) error {
	if page == 1 || f.Status < http.StatusUnauthorized || f.Status > http.StatusMethodNotAllowed {
		return f
	}
	torn := *f
	torn.Err = fmt.Errorf("tag list: page %d: %d: %w", page, f.Status, release.ErrTornList)
	return &torn
}

// lacks returns why a list is incomplete.
func lacks(l *distspec.TagList, known []string, mirror bool) error {
	for _, tag := range known {
		if !l.Has(tag) {
			return fmt.Errorf("has %d tags, but not %s, which exists: a cache lists only the tags that it has served",
				len(l.Tags), tag)
		}
	}
	if mirror && len(l.Tags) == 0 {
		return errors.New("is empty")
	}
	return nil
}
