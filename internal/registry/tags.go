// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/kubic-project/image-update-agent/tags"
)

// Tags lists the tags of a repository, each once, in the order of the host.
// What is no OCI tag is left out and logged.
func (r *Registry) Tags(ctx context.Context, repository string) ([]string, error) {
	var list tagList
	err := r.each(ctx, repository, mayResolve, func(e endpoint) error {
		list = tagList{seen: map[string]bool{}}
		return r.allPages(ctx, e, &list)
	})
	if err != nil {
		return nil, err
	}
	if list.invalid > 0 {
		r.log.WarnContext(ctx, "tag list has names that are no tags", "repository", repository, "count", list.invalid)
	}
	return list.tags, nil
}

// allPages reads the list page after page as the distribution specification
// has it: the Link header of one names the next.
func (r *Registry) allPages(ctx context.Context, e endpoint, list *tagList) error {
	u := e.url("tags", "list")
	query := u.Query()
	query.Set("n", strconv.Itoa(pageSize))
	u.RawQuery = query.Encode()
	asked := map[string]bool{}
	for page := 1; u != nil; page++ {
		if page > maxPages {
			return e.failed(fmt.Errorf("tag list: more than %d pages", maxPages))
		}
		asked[u.String()] = true
		a, err := r.exchange(ctx, e, question{http.MethodGet, u, "application/json", maxTagPage})
		if err != nil {
			return err
		}
		if err := list.add(a.body); err != nil {
			return e.failed(fmt.Errorf("tag list: %w", err))
		}
		next, err := nextPage(u, a.header.Values("Link"))
		if err != nil {
			return e.failed(fmt.Errorf("tag list: %w", err))
		}
		if next != nil && asked[e.withNamespace(next).String()] {
			return e.failed(fmt.Errorf("tag list: page %d repeats", page))
		}
		u = next
	}
	return nil
}

type tagList struct {
	tags    []string
	seen    map[string]bool
	invalid int
}

// add reads one page. A page with no tag that is new, but some that are not,
// is a host that goes in circles.
func (l *tagList) add(page []byte) error {
	var body struct {
		Tags []string `json:"tags"`
	}
	if err := json.Unmarshal(page, &body); err != nil {
		return err
	}
	known := 0
	for _, tag := range body.Tags {
		switch {
		case tags.Classify(tag) == tags.ClassInvalid:
			l.invalid++
		case l.seen[tag]:
			known++
		default:
			l.seen[tag] = true
			l.tags = append(l.tags, tag)
		}
	}
	if known > 0 && known == len(body.Tags) {
		return errors.New("page repeats")
	}
	return nil
}

// nextPage resolves the Link with relation next against the page that it came
// with; nil: this page is the last. It stays on the page's host and scheme.
func nextPage(page *url.URL, links []string) (*url.URL, error) {
	target, ok := nextLink(links)
	if !ok {
		return nil, nil
	}
	next, err := page.Parse(target)
	if err != nil {
		return nil, errors.New("link: no URL")
	}
	if next.Scheme == "http" && page.Scheme == "https" && strings.EqualFold(next.Host, page.Host) {
		next.Scheme = "https" // a registry behind a TLS proxy that does not know it
	}
	if !sameOrigin(page, next) || next.User != nil || next.Opaque != "" {
		return nil, errors.New("link: leads to another host")
	}
	next.Fragment, next.RawFragment = "", ""
	return next, nil
}
