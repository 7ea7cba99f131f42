// SPDX-License-Identifier: Apache-2.0

package outside

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/kubic-project/image-update-agent/internal/base/lazyregexp"
)

// hidden replaces a secret.
const hidden = "***"

// Mask replaces possible secrets in a text that quotes a URL, a file or an answer: user and password of a URL (even if
// it does not parse), the values of its query, login headers, values of keys such as password and token, PEM blocks,
// and words that look like a token. Texts for people do not change; Mask is idempotent. In doubt it masks.
func Mask(s string) string {
	if !mayBeSecret(s) {
		return s
	}
	s = pemBlock().ReplaceAllString(s, hidden)
	s = maskUserinfo(s)
	s = noPort().ReplaceAllString(s, "${1}"+hidden)
	s = urlPart().ReplaceAllString(s, "${1}\""+hidden+"\"")
	s = userOnly().ReplaceAllStringFunc(s, maskUser)
	s = encodedUser().ReplaceAllString(s, "${1}"+hidden+"${2}")
	s = query().ReplaceAllStringFunc(s, maskQuery)
	s = namelessQuery().ReplaceAllString(s, "${1}"+hidden+"${2}")
	s = fragment().ReplaceAllStringFunc(s, maskFragment)
	s = header().ReplaceAllString(s, "${1}"+hidden)
	s = assigned().ReplaceAllStringFunc(s, maskAssigned)
	s = quotedAfter().ReplaceAllString(s, "${1}"+hidden)
	s = maskCommand(s)
	s = quotedKey().ReplaceAllString(s, "${1}"+hidden)
	s = yamlKey().ReplaceAllString(s, "${1}"+hidden)
	s = maskBareKeys(s)
	s = scheme().ReplaceAllStringFunc(s, maskLogin)
	s = wellKnown().ReplaceAllString(s, hidden)
	return maskOpaques(s)
}

// mayBeSecret avoids the search for most texts, which would take half of a cycle's time.
func mayBeSecret(s string) bool {
	if strings.ContainsAny(s, "@=?%") || strings.Contains(s, "://") || strings.Contains(s, "-----") ||
		strings.Contains(s, " -") || hasLongWord(strings.ReplaceAll(s, program, " ")) {
		return true
	}
	lower := strings.ToLower(s)
	return slices.ContainsFunc(named[:], func(name string) bool { return strings.Contains(lower, name) })
}

// hasLongWord reports whether a text has a word that opaque may match. A text that is not ASCII has one: its letters
// may fold to ASCII.
func hasLongWord(s string) bool {
	length := 0
	for n := range len(s) {
		switch c := s[n]; {
		case c >= utf8.RuneSelf:
			return true
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '+', c == '_', c == '-':
			if length++; length == minOpaque {
				return true
			}
		default:
			length = 0
		}
	}
	return false
}

// program is a long word in most remedies, and not a secret.
const program = "image-update-agent"

// minOpaque is the minimum length of a token without padding, as in opaque.
const minOpaque = 16

// Shapes of secrets. A value is quoted, or ends at the next space.
const (
	value = `(?:\\?"(?:[^"\\]|\\[^"])*(?:\\?"|$)|'[^']*(?:'|$)|\[[^\]]*(?:\]|$)|[^\s"',;)\]}&]*[^\s"',;)\]}&:])`
	words = `[\w.-]*(?:passw(?:or)?d|passphrase|pwd|secret|token|api[-_]?key|access[-_]?key|private[-_]?key|` +
		`credential|authorization|cookie|signature|account[-_]?key|shared[-_]?key)[\w.-]*`
)

var (
	// named are words, one of which is in each shape with a name.
	named = [...]string{
		"passw", "passphrase", "pwd", "secret", "token", "key", "credential", "auth", "cookie", "bearer", "basic",
		"negotiate", "ntlm", "sig",
	}

	pemBlock = lazyregexp.New(`(?s)-----BEGIN.*?(?:-----END[^-]*(?:-----|$)|$)`)

	// Go's net/url quotes a part of a URL that it cannot parse, which may be part of the password or a header's name.
	urlPart = lazyregexp.New(`(invalid (?:port|URL escape|header field name) )\\*"(?:[^"\\]|\\[^"])*\\*"?`)
	noPort  = lazyregexp.New(`(://\*\*\*@[\w.-]+:)[^/?#\s"'\\]*[^/?#\s"'\\0-9:,.;)*][^/?#\s"'\\]*`)

	userOnly = lazyregexp.New(`[^\s/@"':=\\]*:[^\s@"'/]+@\S*`)
	// encodedUser matches user and password of a URL that is encoded in another one.
	encodedUser = lazyregexp.New(`(?i)(%3a%2f%2f)[^\s"'&]*(%40)`)
	query       = lazyregexp.New(`((?:[?&#;]|\\u0026|%26|%3[Ff])(?:[A-Za-z0-9_.~\[\]-]|%5[BbDd])+(?:=|%3[Dd]))` +
		`([^&\s"'#<>;\\]+)`)
	fragment      = lazyregexp.New(`://[^\s"'#]*#[^\s"'=&#<>)\]},;\\]+`)
	namelessQuery = lazyregexp.New(`(://[^\s"'?#]*\?)[^\s"'=&#]+($|[\s"'#])`)

	quotedAfter = lazyregexp.New(`(?i)(\b(?:token|password|passphrase|secret)\s+)\\?"(?:[^"\\]|\\[^"])*\\?"`)

	header    = lazyregexp.New(`(?i)((?:(?:proxy-)?authorization|(?:set-)?cookie)\\?["']?\s*[:=]\s*)[^\n]+`)
	assigned  = lazyregexp.New(`(?i)((?:` + words + `|\bauth|\bsig)\s*=\s*)` + value)
	quotedKey = lazyregexp.New(`(?i)(["'](?:` + words + `|auth)\\?["']\s*[:=]\s*)` + value)
	yamlKey   = lazyregexp.New(`(?i)(\b(?:x-[\w-]*(?:token|key|auth|secret)[\w-]*|[\w]+-token|` +
		`password|passwd|passphrase|(?:client|app)[-_]?secret|` +
		`(?:identity|registry|access|refresh|id|auth)[-_]?token|api[-_]?key):\s*)` + value)
	scheme    = lazyregexp.New(`(?i)\b(bearer|basic|negotiate|ntlm|token)(?:\s|%20|\+)+[^\s"',;)\]}]*[^\s"',;)\]}:]`)
	wellKnown = lazyregexp.New(`\b(?:eyJ[\w-]{8,}(?:\.[\w-]*)*|gh[pousr]_\w{8,}|github_pat_\w{8,}|` +
		`gl[a-z]{2,5}-[\w-]{8,}|` +
		`dckr_[a-z]{2,5}_[\w-]{8,}|xox[a-z]-[\w-]{8,}|A(?:KIA|SIA)[A-Z0-9]{12,}|hv[bsr]\.[\w-]{8,}|` +
		`[a-z0-9]{6}\.[a-z0-9]{16}|AIza[\w-]{20,}|ya29\.[\w-]{8,}|GOCSPX-[\w-]{8,}|SG\.[\w-]{16,}\.[\w-]{16,}|` +
		`sha256~[\w-]{16,}|npm_\w{20,}|hf_\w{20,}|pypi-[\w-]{16,}|` +
		`sk_(?:live|test)_\w{8,}|sk-(?:proj|ant|svcacct)-[\w-]{16,}|do[opr]_v1_[0-9a-f]{16,}|` +
		`shp[a-z]{2}_[0-9a-f]{16,}|` +
		`AGE-SECRET-KEY-1[A-Z0-9]{16,}|v1\.0-[0-9a-f]{24}-[0-9a-f]{16,}|nvapi-[\w-]{16,}|` +
		`\w{14}\.atlasv1\.[\w-]{16,})(?:\b|$)`)
	opaque = lazyregexp.New(`[A-Za-z0-9+_-]{16,}={0,2}|[A-Za-z0-9+/_-]{8,}={1,2}(?:[\s"',;)\]}\\]|$)`)
)

// Query values that are not secret, and useful: of tag lists, of a registry's token server, of Kubernetes' clients, and
// the version of a media type.
var plainQuery = lazyregexp.New(
	`^(?:[?&#;](?:n|last|ns|service|scope|tag|digest|artifactType|page|per_page|timeout)=|;version=[0-9.]{1,8}$)`)

func maskQuery(part string) string {
	if plainQuery().MatchString(part) {
		return part
	}
	return query().ReplaceAllString(part, "${1}"+hidden)
}

// anchor matches the anchor of a page's heading in a link.
var anchor = lazyregexp.New(`^[a-z]+(?:-[a-z]+)+$`)

// maskFragment masks the fragment of a URL that has no name and is not an anchor.
func maskFragment(part string) string {
	url, name, _ := strings.Cut(part, "#")
	if anchor().MatchString(name) {
		return part
	}
	return url + "#" + hidden
}

// maskAssigned masks the text after the equals sign, unless it is the name or the path of a systemd credential.
func maskAssigned(part string) string {
	if credentialPlace().MatchString(part) {
		return part
	}
	return assigned().ReplaceAllString(part, "${1}"+hidden)
}

var credentialPlace = lazyregexp.New(`^(?:Load|Import)Credential(?:Encrypted)?=`)

// placeholder matches REPOSITORY:TAG@DIGEST in help texts.
var placeholder = lazyregexp.New(`^(?:TAG@DIGEST|tag@digest)(?:[^\w.-]|\.?$)`)

// maskUser masks user:password@host without a scheme, and keeps name:tag@sha256:...
func maskUser(part string) string {
	name, rest, _ := strings.Cut(part, ":")
	if placeholder().MatchString(rest) {
		return part
	}
	at := strings.LastIndex(rest, "@")
	if isDigest(rest[at+1:]) {
		if at = strings.LastIndex(rest[:at], "@"); at < 0 {
			return part
		}
	}
	return name + ":" + hidden + rest[at:]
}

// maskLogin masks the text after the scheme of a login, unless it is a word for people or a challenge.
func maskLogin(part string) string {
	at := strings.IndexFunc(part, func(r rune) bool { return unicode.IsSpace(r) || r == '%' || r == '+' })
	if strings.HasPrefix(part[at:], "%20") {
		at += 2
	}
	what := strings.TrimLeft(part[at+1:], " \t+")
	isWord := loginWord().MatchString(what)
	if strings.EqualFold(part[:min(5, at)], "token") {
		isWord = isWord || len(what) < 12 || !strings.ContainsAny(what, "0123456789")
	}
	if isWord {
		return part
	}
	return part[:at] + " " + hidden
}

var loginWord = lazyregexp.New(`(?i)^(?:auth(?:entication|orization)?|token|tokens|` +
	`realm=?.*|scope=.*|service=.*|error=.*|` +
	`challenges?|credentials?|login|logins|headers?|schemes?|is|was|of|for|from|and|or|in|with|without|has|needs|` +
	`server|service|` +
	`expected|required|missing|not|no)[.,]?$`)

// maskUserinfo masks the text between :// and @, even if the password has slashes, quotes or spaces.
func maskUserinfo(s string) string {
	var b strings.Builder
	for {
		at := strings.Index(s, "://")
		if at < 0 {
			b.WriteString(s)
			return b.String()
		}
		rest := s[at+3:]
		from, to := userinfo(rest, quoteBefore(s[:at]))
		b.WriteString(s[:at+3] + rest[:from])
		if to > from {
			b.WriteString(hidden)
		}
		s = rest[max(to, from):]
	}
}

// quoteBefore returns the quote before a URL's scheme; 0 if there is none.
func quoteBefore(s string) byte {
	s = strings.TrimRightFunc(s, func(r rune) bool {
		return r < unicode.MaxASCII && (unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("+.-", r))
	})
	if s == "" || !strings.ContainsRune("\"'`", rune(s[len(s)-1])) {
		return 0
	}
	return s[len(s)-1]
}

// userinfo returns the position of user and password in the text after "://"; to is 0 if there are none.
func userinfo(rest string, quote byte) (from, to int) {
	end := strings.IndexAny(rest, " \t\r\n\"'`<>")
	if quote != 0 {
		end = strings.IndexByte(rest, quote)
		for end > 0 && rest[end-1] == '\\' && strings.IndexByte(rest[end+1:], quote) >= 0 {
			end += 1 + strings.IndexByte(rest[end+1:], quote)
		}
	}
	if end < 0 {
		end = len(rest)
	}
	token := rest[:end]
	if next := strings.Index(token, "://"); next >= 0 && !strings.Contains(token[:next], "@") {
		token = token[:next] // another URL, which is handled on its own
	}
	at := strings.LastIndex(token, "@")
	if at >= 0 && isDigest(token[at+1:]) {
		at = strings.LastIndex(token[:at], "@")
	}
	if at >= 0 {
		return 0, at
	}
	authority := token
	if at := strings.IndexAny(token, "/?#\\"); at >= 0 {
		authority = token[:at]
	}
	authority = strings.TrimRight(authority, ":,.;)")
	colon := strings.IndexByte(authority, ':')
	if colon < 0 || authority == "REPOSITORY:TAG" || strings.HasPrefix(authority, "[") ||
		port().MatchString(authority[colon+1:]) {
		return 0, 0
	}
	// Not a port, so it is a password that was cut, or that has a space.
	if at := strings.IndexByte(rest, '@'); at > 0 && !strings.Contains(rest[:at], "\n") && !isDigest(rest[at+1:]) {
		return 0, at
	}
	return colon + 1, len(token)
}

var (
	port   = lazyregexp.New(`^[0-9]{0,5}[^\w!$*~%-]{0,3}$`)
	digest = lazyregexp.New(`^(?:sha|sha2|sha25|sha256|sha5|sha51|sha512)(?:$|[^\w]|:)`)
)

// isDigest reports whether the text after an @ is a digest, perhaps shortened.
func isDigest(s string) bool { return digest().MatchString(s) }

// stamp matches a time in a name, as in a catalog's ops, whose rest is hexadecimal.
var stamp = lazyregexp.New(`\b\d{8}T\d{6}Z\b`)

// directive matches the name of a systemd setting: capitalized words.
var directive = lazyregexp.New(`^(?:[A-Z]{1,4}[a-z]{2,})+$`)

// inReference matches the start of a reference with a host, up to and in its tag.
var inReference = lazyregexp.New(`(?:^|[\s"'=(\[])(?:[a-z0-9-]+\.)+[a-z0-9-]+(?::[0-9]{1,5})?` +
	`(?:/[a-z0-9._-]+)+:[\w.-]*$`)

// maxReference is more than the length of a reference.
const maxReference = 512

// maskOpaques masks words that look like a token, except in the tag of a reference, and keeps the text after them.
func maskOpaques(s string) string {
	var out strings.Builder
	from := 0
	for _, at := range opaque().FindAllStringIndex(s, -1) {
		word := strings.TrimRight(s[at[0]:at[1]], " \t\r\n\f\"',;)]}\\")
		bare, padded := strings.CutSuffix(word, "=")
		if padded && directive().MatchString(bare) || !isOpaque(word) ||
			!padded && inReference().MatchString(s[max(at[0]-maxReference, 0):at[0]]) {
			continue
		}
		out.WriteString(s[from:at[0]] + hidden)
		from = at[0] + len(word)
	}
	return out.String() + s[from:]
}

// isOpaque reports whether a word looks like base64 or another random token: without the parts that people read, its
// characters change between upper case, lower case and digits as often as random ones. Digests, names, times and tags
// made of them do not.
func isOpaque(word string) bool {
	bare := stamp().ReplaceAllString(strings.TrimRight(word, "="), "")
	whole := kindsOf(bare)
	if strings.Contains(word, "=") {
		return whole.upper > 0 && whole.lower+whole.digits > 0 && 4*whole.changes >= len(bare)
	}
	if whole.lower == 0 && len(bare) >= minUpper {
		return whole.upper > 0 && whole.digits > 0 && whole.others == 0 && !isHex(bare)
	}
	random := 0
	for part := range strings.FieldsFuncSeq(bare, func(r rune) bool { return r == '-' || r == '_' }) {
		if k := kindsOf(part); 5*k.changes >= 2*len(part) && (len(part) > minOpaque || !isHex(part)) {
			random += len(part)
		}
	}
	return whole.lower > 0 && whole.upper > 0 && whole.digits > 0 && 5*whole.changes >= 2*len(bare) &&
		(random >= minOpaque || 4*random >= 3*len(bare))
}

// minUpper is the length from which upper case letters and digits alone look like a token: registries of robots use
// them.
const minUpper = 40

// kinds counts the characters of a word by kind, and the changes from one kind to another.
type kinds struct{ lower, upper, digits, others, changes int }

func kindsOf(word string) kinds {
	var k kinds
	var before *int
	for _, r := range word {
		kind := &k.others
		switch {
		case r >= 'a' && r <= 'z':
			kind = &k.lower
		case r >= 'A' && r <= 'Z':
			kind = &k.upper
		case r >= '0' && r <= '9':
			kind = &k.digits
		}
		*kind++
		if before != nil && kind != before {
			k.changes++
		}
		before = kind
	}
	return k
}

func isHex(word string) bool { return strings.Trim(word, "0123456789abcdefABCDEF") == "" }

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
