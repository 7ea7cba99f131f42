// SPDX-License-Identifier: Apache-2.0

// Package distspec parses answers of registries by the distribution specification and as registries really send them:
// tag lists page by page, the Link to the next page, Retry-After. It sends nothing itself, and limits what it reads.
package distspec

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/kubic-project/image-update-agent/internal/base/outside"
	"github.com/kubic-project/image-update-agent/internal/registry/ocimanifest"
	"github.com/kubic-project/image-update-agent/tags"
)

// ErrNoTagList: JSON, but not a tag list. Such an answer does not say which tags exist.
var ErrNoTagList = errors.New("no tag list")

const (
	maxName = 128 // bytes of a tag (distribution specification)
	depth   = 64  // of nested lists and objects
)

// tooLong replaces a name that is longer than any tag.
const tooLong = `"`

// readTagPage reads one page of a tag list, and keeps only its names: Google's registries send megabytes of other data
// with them (`child`, `manifest`). It returns at most `most` names, which need not be tags; a name longer than a tag is
// replaced by a quote. It reads the reader to its end; the reader limits the size.
func readTagPage(from io.Reader, most int) ([]string, error) {
	ends := &firstError{Reader: from}
	p := page{json.NewDecoder(ends)}
	names, err := p.read(most)
	if err == nil {
		switch token, errEnd := p.Token(); {
		case errEnd == nil:
			err = fmt.Errorf("%v after the list", token)
		case !errors.Is(errEnd, io.EOF):
			err = fmt.Errorf("after the list: %w", errEnd)
		}
	}
	switch {
	case err != nil && ends.err != nil && !errors.Is(ends.err, io.EOF):
		err = ends.err // the reader's: a limit or the end of a wait
	case errors.Is(err, io.EOF):
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return nil, err
	}
	return names, nil
}

// firstError ends with the first error. After one in More, the decoder would read again and get another.
type firstError struct {
	io.Reader
	err error
}

func (f *firstError) Read(p []byte) (n int, err error) {
	if f.err == nil {
		n, f.err = f.Reader.Read(p)
	}
	return n, f.err
}

// page reads token by token: encoding/json keeps nothing of what is skipped.
type page struct{ *json.Decoder }

func (p page) read(most int) (names []string, err error) {
	begin, err := p.Token()
	switch _, isSyntax := errors.AsType[*json.SyntaxError](err); {
	case isSyntax:
		return nil, fmt.Errorf("%w: %w", err, ErrNoTagList)
	case err == nil && begin != json.Delim('{'):
		return nil, ErrNoTagList
	}
	seen := map[any]bool{}
	for err == nil && p.More() {
		var key json.Token
		if key, err = p.Token(); err != nil {
			break
		}
		if key != "tags" && key != "name" {
			err = p.skip()
			continue
		}
		if seen[key] {
			return nil, fmt.Errorf("%s: appears twice", key)
		}
		if seen[key] = true; key == "name" {
			err = p.skip()
		} else {
			names, err = p.names(most)
		}
	}
	if err == nil {
		_, err = p.Token()
	}
	if err == nil && !seen["tags"] && !seen["name"] {
		err = ErrNoTagList
	}
	return names, err
}

// names reads a list of strings, or null. An element that is null is an empty name.
func (p page) names(most int) (names []string, err error) {
	begin, err := p.Token()
	if err != nil || begin == nil {
		return nil, err
	}
	if begin != json.Delim('[') {
		return nil, fmt.Errorf("tags: %v: %w", begin, ErrNoTagList)
	}
	for p.More() {
		if len(names) == most {
			return nil, fmt.Errorf("%w entries of a list: over %d", ocimanifest.ErrTooMany, most)
		}
		token, err := p.Token()
		if err != nil {
			return nil, err
		}
		name, isText := token.(string)
		switch {
		case !isText && token != nil:
			return nil, fmt.Errorf("tags: %v: %w", token, ErrNoTagList)
		case len(name) > maxName:
			name = tooLong
		}
		names = append(names, name)
	}
	_, err = p.Token()
	return names, err
}

// skip reads and drops a value.
func (p page) skip() error {
	for level := 0; ; {
		token, err := p.Token()
		if err != nil {
			return err
		}
		switch token {
		case json.Delim('{'), json.Delim('['):
			level++
		case json.Delim('}'), json.Delim(']'):
			level--
		}
		if level > depth {
			return fmt.Errorf("%w nested lists and objects: over %d", ocimanifest.ErrTooMany, depth)
		}
		if level == 0 {
			return nil
		}
	}
}

// Errors of a Link header. The next page is unknown, so the list is incomplete.
var (
	ErrForeignLink = errors.New("link: leads to another host")
	ErrLink        = errors.New("link: no URL")
)

// NextPage returns the URL of the next page from the Link headers of a page; nil if there is none. page is the URL that
// the client requested, not the target of a redirect.
//
// Registries do not know their public address: behind a proxy a link has another scheme, host or port, and lacks the
// prefix of the repository's path (Artifactory). So the client continues at its own URL, with the query of the link.
// Only a link to another resource on the same host is followed as it is.
func NextPage(page *url.URL, headers []string) (*url.URL, error) {
	target, ok := nextLink(headers)
	if !ok {
		return nil, nil
	}
	next, err := page.Parse(target)
	if err != nil {
		return nil, ErrLink
	}
	query := next.Query()
	switch {
	case next.User != nil:
		return nil, ErrForeignLink
	case next.RawQuery != "" && isSameThing(next, page):
		own := *page
		own.RawQuery = next.RawQuery
		next = &own
	case query.Has("last"):
		own := *page
		own.RawQuery = withLast(page.Query(), query).Encode()
		next = &own
	case !isSameHost(next, page):
		return nil, ErrForeignLink
	default:
		next.Scheme, next.Host = page.Scheme, page.Host
	}
	next.Fragment, next.RawFragment = "", ""
	return next, nil
}

// withLast returns the query of a page that starts after the last name of another.
func withLast(own, link url.Values) url.Values {
	for _, name := range []string{"last", "n"} {
		if link.Has(name) {
			own.Set(name, link.Get(name))
		}
	}
	return own
}

// isSameThing reports whether two paths name the same resource: both end in tags/list, or in referrers and a digest.
func isSameThing(a, b *url.URL) bool {
	end := func(u *url.URL) string { return path.Join(path.Base(path.Dir(u.Path)), path.Base(u.Path)) }
	return end(a) == end(b)
}

// isSameHost reports whether a link stays on the host of its page: on its origin, or on what a registry behind a proxy
// uses for it: http instead of https, and no port.
func isSameHost(next, page *url.URL) bool {
	if next.Opaque != "" || next.Scheme != page.Scheme && (next.Scheme != "http" || page.Scheme != "https") {
		return false
	}
	if strings.EqualFold(next.Host, page.Host) {
		return true
	}
	standard := map[string]string{"http": "80", "https": "443"}
	return strings.EqualFold(next.Hostname(), page.Hostname()) &&
		(next.Port() == "" || next.Port() == standard[next.Scheme] && page.Port() == "" || next.Port() == page.Port())
}

// link is one entry of a Link header (RFC 8288, section 3).
type link struct{ target, rel string }

// nextLink returns the target of the first link with the relation next. A link with a last and without a relation
// counts as next.
func nextLink(headers []string) (string, bool) {
	all := links(strings.Join(headers, ","))
	for _, l := range all {
		if slices.Contains(strings.Fields(strings.ToLower(l.rel)), "next") {
			return l.target, true
		}
	}
	for _, l := range all {
		if _, query, _ := strings.Cut(l.target, "?"); l.rel == "" && strings.Contains("&"+query, "&last=") {
			return l.target, true
		}
	}
	return "", false
}

// links parses a Link header leniently: the brackets of a target and the quotes of a relation may be missing.
func links(header string) []link {
	var out []link
	for {
		header = strings.TrimLeft(header, " \t,")
		if header == "" {
			return out
		}
		var l link
		if rest, bracketed := strings.CutPrefix(header, "<"); bracketed {
			if l.target, header = cutAt(rest, "<>"); !strings.HasPrefix(header, ">") {
				l.target, header = cutAt(rest, ";,") // not closed
			}
			header = strings.TrimPrefix(header, ">")
		} else {
			l.target, header = cutAt(header, ";,")
		}
		l.target = strings.TrimSpace(l.target)
		l.rel, header = parameters(header)
		out = append(out, l)
	}
}

// parameters reads the parameters of a target, up to the next link, and returns the first relation.
func parameters(rest string) (rel, after string) {
	for {
		rest = strings.TrimLeft(rest, " \t")
		var isMore bool
		if rest, isMore = strings.CutPrefix(rest, ";"); !isMore {
			_, rest = cutAt(rest, ",") // not a parameter
			return rel, rest
		}
		var name, value string
		name, rest = cutAt(rest, "=;,")
		if after, hasValue := strings.CutPrefix(rest, "="); hasValue {
			value, rest = parameterValue(strings.TrimLeft(after, " \t"))
		}
		if rel == "" && strings.EqualFold(strings.TrimSpace(name), "rel") {
			rel = value
		}
	}
}

// parameterValue reads a token or a quoted string. A quote that is not closed is part of a token.
func parameterValue(rest string) (value, after string) {
	if rest == "" || rest[0] != '"' && rest[0] != '\'' {
		value, after = cutAt(rest, ";,")
		return strings.TrimSpace(value), after
	}
	var text strings.Builder
	for i := 1; i < len(rest); i++ {
		switch {
		case rest[i] == rest[0]:
			return text.String(), rest[i+1:]
		case rest[i] == '\\' && i+1 < len(rest):
			i++
		}
		text.WriteByte(rest[i])
	}
	return parameterValue(rest[1:])
}

// cutAt cuts a text before the first of some bytes.
func cutAt(text, bytes string) (before, after string) {
	if i := strings.IndexAny(text, bytes); i >= 0 {
		return text[:i], text[i:]
	}
	return text, ""
}

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
