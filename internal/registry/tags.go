// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/kubic-project/image-update-agent/internal/ocimanifest"
	"github.com/kubic-project/image-update-agent/internal/outside"
	"github.com/kubic-project/image-update-agent/internal/registry/transport"
	"github.com/kubic-project/image-update-agent/tags"
)

// Tags lists the tags of a repository, each once, in the order of the host.
// What is no OCI tag is left out and logged.
func (r *Registry) Tags(ctx context.Context, repository string) ([]string, error) {
	list, err := each(ctx, r, repository, mayResolve, func(e endpoint) (*tagList, error) { return e.tags(ctx) })
	if err != nil {
		return nil, err
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
	u := e.url("tags", "list")
	query := u.Query()
	query.Set("n", strconv.Itoa(pageSize))
	u.RawQuery = query.Encode()
	list, asked := &tagList{seen: map[string]bool{}}, map[string]bool{}
	for page := 1; u != nil; page++ {
		if page > maxPages {
			return failed(fmt.Errorf("more than %d pages", maxPages))
		}
		asked[u.String()] = true
		a, err := e.get(ctx, u, "application/json", maxTagPage)
		// A host may have refused the size of the page, and not the list: distribution 3
		// says 400, Quay said 413, and validators say 422. Without a size, each gives
		// pages of its own.
		if page == 1 && hasStatus(err,
			http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity) {
			u = e.url("tags", "list")
			a, err = e.get(ctx, u, "application/json", maxTagPage)
		}
		if err != nil {
			return nil, err
		}
		if err := list.add(a.Body); err != nil {
			return failed(err)
		}
		if u, err = nextPage(u, a.Header.Values("Link")); err != nil {
			return failed(err)
		}
		if u != nil && asked[e.withNamespace(u).String()] {
			return failed(fmt.Errorf("page %d repeats", page))
		}
	}
	return list, nil
}

type tagList struct {
	tags    []string
	seen    map[string]bool
	invalid int
	bytes   int // of the pages so far
}

// add reads one page. A page with no tag that is new, but some that are not,
// is a host that goes in circles.
func (l *tagList) add(page []byte) error {
	if l.bytes += len(page); l.bytes > maxTagList {
		return fmt.Errorf("%w: over %d bytes", outside.ErrTooLarge, maxTagList)
	}
	// Counted first: a page of the least tags has more than twice as many.
	if _, err := (&ocimanifest.Bounds{Entries: maxTags, Members: 2 * maxTags}).Write(page); err != nil {
		return err
	}
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
		case len(l.tags) == maxTags:
			return fmt.Errorf("%w: over %d tags", outside.ErrTooLarge, maxTags)
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
	if behindProxy(next, page) {
		next.Scheme, next.Host = page.Scheme, page.Host
	}
	if !transport.SameOrigin(page, next) || next.User != nil || next.Opaque != "" {
		return nil, errors.New("link: leads to another host")
	}
	next.Fragment, next.RawFragment = "", ""
	return next, nil
}

// behindProxy reports the absolute link of a registry that does not know how it
// is reached: through TLS, or at a port that the proxy does not name to it.
func behindProxy(next, page *url.URL) bool {
	if next.Scheme != page.Scheme && (next.Scheme != "http" || page.Scheme != "https") {
		return false
	}
	return strings.EqualFold(next.Host, page.Host) ||
		next.Port() == "" && strings.EqualFold(next.Hostname(), page.Hostname())
}

// links are those of a Link header (RFC 8288, section 3): <target>; parameters.
var links = regexp.MustCompile(`<([^<>]*)>((?:"(?:[^"\\]|\\.)*"|[^",])*)`)

// nextLink finds the target of the first link with the relation next. What cannot be
// read is skipped.
func nextLink(headers []string) (string, bool) {
	for _, link := range links.FindAllStringSubmatch(strings.Join(headers, ","), -1) {
		// After the first semicolon the grammar is that of media types.
		_, parameters, err := mime.ParseMediaType("link" + link[2])
		if err == nil && slices.Contains(strings.Fields(strings.ToLower(parameters["rel"])), "next") {
			return link[1], true
		}
	}
	return "", false
}
