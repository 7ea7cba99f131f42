// SPDX-License-Identifier: Apache-2.0

package distspec

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"github.com/kubic-project/image-update-agent/internal/base/outside"
	"github.com/kubic-project/image-update-agent/tags"
)

// Lister reads tag lists, page by page.
type Lister struct {
	PageSize, MaxPages, MaxTags int
	MaxBytes                    int // of all pages
	// Get requests a page and reads it by read as it arrives. It returns the headers of the answer.
	Get func(page *url.URL, read func(http.Header, io.Reader) error) (http.Header, error)
	// Status returns the status of an answer in an error of Get; 0 if the error says nothing about the requested size.
	Status func(error) int
}

// TagList has the tags of a repository.
type TagList struct {
	Tags    []string // each once, in the host's order
	Invalid int      // names that are not tags
	Pages   int      // that were requested

	lister Lister
	seen   map[string]bool
	last   string // of the pages so far
	bytes  int    // of the pages so far

	names, added int  // of the last page
	unsized      bool // the host was asked for all tags, without a page size
	guessing     bool // the host has sent a full page without a Link
}

// Has reports whether the list has a tag.
func (l *TagList) Has(tag string) bool { return l.seen[tag] }

// Read reads the list at a URL as in the distribution specification: the Link header of each page names the next one.
// With an error of Get, the last of Pages is the one that failed. All pages are requested with the query of the list's
// URL.
func (p Lister) Read(list *url.URL) (*TagList, error) {
	l, asked := &TagList{lister: p, seen: map[string]bool{}}, map[string]bool{}
	for u := tagPage(list, p.PageSize, ""); u != nil; {
		if l.Pages++; l.Pages > p.MaxPages {
			return l, fmt.Errorf("%w: over %d pages", outside.ErrTooLarge, p.MaxPages)
		}
		asked[u.String()] = true
		headers, err := p.Get(u, l.read)
		if isFirst := l.Pages == 1; err != nil && (isFirst || l.guessing) && !l.unsized &&
			mayRefuseSize(p.Status(err), isFirst) {
			u, l.unsized = list, true
			headers, err = p.Get(u, l.read)
		}
		if err != nil {
			return l, err
		}
		if u, err = NextPage(u, headers.Values("Link")); err != nil {
			return l, err
		}
		if u == nil && (l.Pages == 1 || l.guessing) {
			u = l.guess(list)
		}
		if u != nil && asked[withQuery(u, list).String()] {
			return l, fmt.Errorf("page %d repeats", l.Pages)
		}
	}
	return l, nil
}

// withQuery adds the query of the list to the URL of a page, which need not have it: a mirror wants its namespace (ns).
func withQuery(page, list *url.URL) *url.URL {
	query, isChanged := page.Query(), false
	for name := range list.Query() {
		if value := list.Query().Get(name); query.Get(name) != value {
			query.Set(name, value)
			isChanged = true
		}
	}
	if isChanged {
		page.RawQuery = query.Encode()
	}
	return page
}

// guess returns the URL after a page without a Link; nil if it was the last one. By the distribution specification a
// page of the requested size needs no Link: go-containerregistry's registry and Nexus's groups send none. A host that
// ignores where the page should begin is asked for all tags.
func (l *TagList) guess(list *url.URL) *url.URL {
	if l.unsized || l.names != l.lister.PageSize {
		return nil
	}
	l.guessing = true
	if l.added == 0 {
		l.unsized = true
		return list
	}
	return tagPage(list, l.lister.PageSize, l.last)
}

// read reads a page as it arrives, and adds it.
func (l *TagList) read(headers http.Header, page io.Reader) error {
	names, err := readTagPage(countedPage{page, l}, l.lister.MaxTags)
	if err != nil {
		return err
	}
	return l.add(names, headers.Get("Link") == "")
}

// countedPage counts the bytes of all pages.
type countedPage struct {
	io.Reader
	list *TagList
}

func (c countedPage) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	if most := c.list.lister.MaxBytes; c.list.bytes+n > most {
		return 0, fmt.Errorf("%w: over %d bytes", outside.ErrTooLarge, most)
	}
	c.list.bytes += n
	return n, err
}

// add adds a page. A page with only known tags means that the host repeats its pages. But for some hosts a page begins
// with the last tag of the page before, so the last one may have this tag alone.
func (l *TagList) add(names []string, isLast bool) error {
	before, length := l.last, len(l.Tags)
	known := 0
	for _, tag := range names {
		l.last = tag
		switch {
		case tags.Classify(tag) == tags.ClassInvalid:
			l.Invalid++
		case l.seen[tag]:
			known++
		case len(l.Tags) == l.lister.MaxTags:
			return fmt.Errorf("%w: over %d tags", outside.ErrTooLarge, l.lister.MaxTags)
		default:
			l.seen[tag] = true
			l.Tags = append(l.Tags, tag)
		}
	}
	l.names, l.added = len(names), len(l.Tags)-length
	overlaps := isLast && len(names) == 1 && names[0] == before
	if known > 0 && known == len(names) && !overlaps && !l.guessing {
		return errors.New("page repeats")
	}
	return nil
}

// tagPage returns the URL of a page of a list of tags with at most size tags: the first page, or the one after the tag
// last.
func tagPage(list *url.URL, size int, last string) *url.URL {
	page, query := *list, list.Query()
	query.Set("n", strconv.Itoa(size))
	if last != "" {
		query.Set("last", last)
	}
	page.RawQuery = query.Encode()
	return &page
}

// mayRefuseSize reports whether a host with this answer may have refused the size of the page rather than the list:
// distribution 3 answers 400, Quay 413, validators 422, and others fail on the first page (500, 501). Without a size
// each uses its own.
func mayRefuseSize(status int, isFirst bool) bool {
	switch status {
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity:
		return true
	case http.StatusInternalServerError, http.StatusNotImplemented:
		return isFirst
	}
	return false
}
