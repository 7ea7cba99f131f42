// SPDX-License-Identifier: Apache-2.0

package outside

import (
	"slices"
	"strings"

	"github.com/kubic-project/image-update-agent/internal/base/lazyregexp"
)

// Secrets on command lines and in files without quotes.
var (
	option = lazyregexp.New(`(?i)((?:^|[\s"'\[])--?[\w-]*(?:passw(?:or)?d|passphrase|pass|pwd|token|secret|api-?key)` +
		`(?:\s+|=|["']\s*,?\s*))` + value)
	// login matches commands where -p is a password; elsewhere it is a port or a path.
	login      = lazyregexp.New(`(?i)\b(?:login|sshpass)\b|(?:^|\s)(?:-u|--user(?:name)?\b)`)
	shortOfIts = lazyregexp.New(`((?:^|\s)-p(?:\s+|=)?)` + value)
	// user matches user and password in one argument.
	user = lazyregexp.New(`(?i)((?:^|\s)(?:-u|--(?:user|proxy-user|(?:\w+-)?creds))(?:\s*|=)["']?[^\s:"'=]+:)` + value)
	// netrc matches a line of that file.
	netrc = lazyregexp.New(`(?i)(\blogin\s+\S+\s+password\s+)` + value)

	bareKey = lazyregexp.New(
		`(?i)((auth|secret|pwd|\bpass|token|credentials?)\\?["']?:\s+)(` + value + `)(\s*[,}#\n])?`)
)

// maskCommand masks the options of a command line.
func maskCommand(s string) string {
	s = option().ReplaceAllString(s, "${1}"+hidden)
	s = user().ReplaceAllString(s, "${1}"+hidden)
	if login().MatchString(s) {
		s = shortOfIts().ReplaceAllString(s, "${1}"+hidden)
	}
	return netrc().ReplaceAllString(s, "${1}"+hidden)
}

// maskBareKeys masks the value of a YAML key that is also a word in sentences ("token: 401 Unauthorized").
func maskBareKeys(s string) string {
	masked := bareKey().ReplaceAllStringFunc(s+"\n", func(part string) string {
		found := bareKey().FindStringSubmatch(part)
		key, name, value, end := found[1], strings.ToLower(found[2]), found[3], found[4]
		isProse := slices.Contains([]string{"token", "credential", "credentials"}, name)
		isWord := word().MatchString(value) && (isProse || end == "")
		if isWord || isProse && (len(value) < 8 || place().MatchString(value)) {
			return part
		}
		return key + hidden + end
	})
	return strings.TrimSuffix(masked, "\n")
}

// Text after a colon in a sentence.
var (
	word  = lazyregexp.New(`^(?:[a-z-]+|[A-Z-]+|[A-Z][a-z-]+|\d{1,3}|%\w)[.,:]?$`)
	place = lazyregexp.New(`^(?:[{/].*|[a-z]+://.*|[a-z0-9-]+(?:\.[a-z0-9-]+)+(?:[:/].*)?)$`)
)
