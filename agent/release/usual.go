// SPDX-License-Identifier: Apache-2.0

package release

import "strings"

// parseUsual parses a reference as pod manifests usually have it: HOST.DOMAIN[:PORT]/PATH[:TAG], without upper case in
// the name, and without a digest. Other texts are not usual, valid or not. It saves the regular expressions of
// distribution/reference, which take a quarter of a plan, and accepts only what they accept.
func parseUsual(text string) (Reference, bool) {
	host, rest, found := strings.Cut(text, "/")
	path, tag, tagged := strings.Cut(rest, ":")
	domain, port, hasPort := strings.Cut(host, ":")
	switch {
	case !found, len(text) > maxUsual, !strings.Contains(domain, "."), strings.HasSuffix(domain, "docker.io"),
		!isUsualName(domain, "."), hasPort && !isNumber(port), tagged && !isTag(tag):
		return Reference{}, false
	}
	for part := range strings.SplitSeq(path, "/") {
		if !isUsualName(part, "._") {
			return Reference{}, false
		}
	}
	return Reference{Repository: text[:len(host)+1+len(path)], Tag: tag}, true
}

// maxUsual is below the limit of distribution/reference for a name.
const maxUsual = 128

// isUsualName reports whether a text has lower-case letters and digits, with one separator, or dashes, between them.
func isUsualName(text, separators string) bool {
	before := byte('.')
	for _, c := range []byte(text) {
		isSeparator := strings.IndexByte(separators, c) >= 0
		switch {
		case 'a' <= c && c <= 'z', isDigit(c):
		case isSeparator && isWord(before), c == '-' && (isWord(before) || before == '-'):
		default:
			return false
		}
		before = c
	}
	return isWord(before)
}

func isNumber(text string) bool {
	return text != "" && !strings.ContainsFunc(text, func(r rune) bool { return r < '0' || r > '9' })
}

// isTag reports whether a text is a tag: at most 128 letters, digits, "_", "." and "-", of which the last two do not
// begin it.
func isTag(text string) bool {
	for n, c := range []byte(text) {
		if !isWord(c) && (c < 'A' || c > 'Z') && c != '_' && (n == 0 || c != '.' && c != '-') {
			return false
		}
	}
	return text != ""
}

// isWord reports a lower-case letter or a digit.
func isWord(c byte) bool { return 'a' <= c && c <= 'z' || isDigit(c) }

func isDigit(c byte) bool { return '0' <= c && c <= '9' }
