// SPDX-License-Identifier: Apache-2.0

package distspec

import (
	"errors"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Errors of a Link header. The next page is unknown, so the list is incomplete.
var (
	ErrForeignLink = errors.New("link: leads to another host")
	ErrLink        = errors.New("link: no URL")
)

// TagPage returns the URL of a page of a list of tags with at most size tags: the first page, or the one after the tag
// last.
func TagPage(list *url.URL, size int, last string) *url.URL {
	page, query := *list, list.Query()
	query.Set("n", strconv.Itoa(size))
	if last != "" {
		query.Set("last", last)
	}
	page.RawQuery = query.Encode()
	return &page
}

// MayRefuseSize reports whether a host with this answer may have refused the size of the page rather than the list:
// distribution 3 answers 400, Quay 413, validators 422, and others fail on the first page (500, 501). Without a size
// each uses its own.
func MayRefuseSize(status, page int) bool {
	switch status {
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity:
		return true
	case http.StatusInternalServerError, http.StatusNotImplemented:
		return page == 1
	}
	return false
}

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
