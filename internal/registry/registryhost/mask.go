// SPDX-License-Identifier: Apache-2.0

package registryhost

import (
	"bytes"
	"slices"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2/unstable"

	"github.com/kubic-project/image-update-agent/internal/base/lazyregexp"
)

// notShown replaces possible secrets in a printed hosts.toml: printed text ends up in logs and in Salt's job cache,
// while the file may be readable only by root.
const notShown = "(not shown)"

// masked returns a hosts.toml for printing. The values of keys that cannot be secret stay; every other value,
// especially of headers, and the user and the query of every URL are replaced. nil stays nil.
func masked(data []byte) []byte {
	if data == nil {
		return nil
	}
	m := masker{data: maskedWas(data)}
	if err := m.parse(); err != nil {
		return []byte("# " + notShown + ": no TOML\n")
	}
	out := m.apply()
	if !bytes.Equal(out, data) {
		// With a checksum of a hidden part a short password could be guessed.
		out = sums().ReplaceAllLiteral(out, []byte("sha256:"+notShown))
	}
	return out
}

// wasLines matches the admin's lines in a block.
var wasLines = lazyregexp.New(`(?m)(^#\| .*(\n|\z))+`)

// maskedWas masks the admin's lines in blocks as the lines of a file.
func maskedWas(data []byte) []byte {
	return wasLines().ReplaceAllFunc(data, func(lines []byte) []byte {
		var old, out strings.Builder
		for line := range strings.Lines(string(lines)) {
			old.WriteString(strings.TrimPrefix(line, was))
		}
		for line := range strings.Lines(string(masked([]byte(old.String())))) {
			out.WriteString(was + line)
		}
		return []byte(out.String())
	})
}

var sums = lazyregexp.New(`sha256:[0-9a-f]{64}`)

// masker collects the replacements in a file.
type masker struct {
	data   []byte
	parser unstable.Parser
	table  []string // the keys of the current table
	edits  []edit
}

// edit replaces a range of bytes with a text.
type edit struct {
	from, to int
	text     string
}

func (m *masker) parse() error {
	m.parser.KeepComments = true
	m.parser.Reset(m.data)
	for m.parser.NextExpression() {
		for n := m.parser.Expression(); n != nil; n = n.Next() {
			m.expression(n)
		}
	}
	return m.parser.Error()
}

func (m *masker) expression(n *unstable.Node) {
	switch n.Kind {
	case unstable.Comment:
		m.replace(n, maskedComment(string(n.Data)))
	case unstable.Table, unstable.ArrayTable:
		m.table, _ = m.keys(n, nil)
	case unstable.KeyValue:
		path, end := m.keys(n, m.table)
		m.value(n, path, end)
	}
}

// keys returns the full path of a key or a table, and the end of its name.
func (m *masker) keys(n *unstable.Node, table []string) (path []string, end int) {
	path = slices.Clone(table)
	for it := n.Key(); it.Next(); {
		key := it.Node()
		name := string(key.Data)
		shown := maskedURL(name)
		if !isHost(append(slices.Clone(path), name)) && !plainName().MatchString(name) {
			shown = notShown
		}
		if shown != name {
			m.replace(key, strconv.Quote(shown))
		}
		path = append(path, name)
		end = int(key.Raw.Offset + key.Raw.Length)
	}
	return path, end
}

// plainName matches the name of a header or a key; anything else may be a header's value in the wrong place.
var plainName = lazyregexp.New(`^[A-Za-z][A-Za-z_-]{0,39}$`)

// isHost reports whether a path ends with the URL of a host.
func isHost(path []string) bool { return len(path) == 2 && strings.EqualFold(path[0], "host") }

// value masks the value of a key whose name ends at end.
func (m *masker) value(n *unstable.Node, path []string, end int) {
	is := shownValues[strings.ToLower(path[len(path)-1])]
	value := n.Value()
	if is != nil && (len(path) == 1 || len(path) == 3 && isHost(path[:len(path)-1])) &&
		value.Kind != unstable.InlineTable {
		m.leaves(value, is)
		return
	}
	to := int(n.Raw.Offset + n.Raw.Length)
	from := end + bytes.IndexByte(m.data[end:to], '=') + 1
	m.edits = append(m.edits, edit{from, to, " " + strconv.Quote(notShown)})
}

// leaves masks the texts in a value with shown.
func (m *masker) leaves(n *unstable.Node, shown func(string) string) {
	switch n.Kind {
	case unstable.Array:
		for it := n.Children(); it.Next(); {
			m.leaves(it.Node(), shown)
		}
	case unstable.String:
		if text := shown(string(n.Data)); text != string(n.Data) {
			m.replace(n, strconv.Quote(text))
		}
	case unstable.InlineTable:
		for it := n.Children(); it.Next(); {
			m.value(it.Node(), []string{""}, int(it.Node().Raw.Offset))
		}
	case unstable.Comment:
		m.replace(n, maskedComment(string(n.Data)))
	}
}

// shownValues are the keys whose values are printed, with the function that masks them.
var shownValues = map[string]func(string) string{
	"server": maskedURL, "ca": maskedPath, "client": maskedPath, "capabilities": maskedWord, "dial_timeout": maskedWord,
	"skip_verify": maskedWord, "override_path": maskedWord,
}

var word = lazyregexp.New(`^[a-z0-9.]{0,16}$`)

func maskedWord(text string) string {
	if !word().MatchString(text) {
		return notShown
	}
	return text
}

// maskedPath returns the path of a file; the text may be a secret in the wrong place.
func maskedPath(text string) string {
	if strings.Contains(text, "-----") || strings.ContainsAny(text, "\n\r") || len(text) > 1024 {
		return notShown
	}
	return maskedURL(text)
}

// maskedURL returns a URL without its user, password, query and fragment.
func maskedURL(text string) string {
	scheme, rest, found := strings.Cut(text, "://")
	if found {
		scheme += "://"
	} else {
		scheme, rest = "", text
	}
	if cut := strings.IndexAny(rest, "?#"); cut >= 0 && !strings.Contains(rest[cut:], "@") {
		rest = rest[:cut+1] + notShown
	}
	if cut := strings.LastIndexByte(rest, '@'); cut >= 0 {
		rest = notShown + rest[cut:]
		if cut := strings.IndexAny(rest, "?#"); cut >= 0 {
			rest = rest[:cut+1] + notShown
		}
	}
	if strings.ContainsAny(text, "\n\r") {
		return notShown
	}
	return scheme + rest
}

// secretWord matches a word before a secret in a comment.
var (
	secretWord = lazyregexp.New(
		`(?i)(authorization|bearer|basic|password|passwd|secret|token|key|cookie|login)\S*\s.*|=.*`)
	urlWord = lazyregexp.New(`\S+://\S+|\S+:\S*@\S+`)
)

// maskedComment returns a comment without possible secrets: a commented-out line is handled like a setting.
func maskedComment(text string) string {
	content := strings.TrimLeft(text, "#")
	marks := text[:len(text)-len(content)]
	m := masker{data: []byte(content)}
	if strings.TrimSpace(content) != "" && m.parse() == nil {
		return marks + string(m.apply())
	}
	content = urlWord().ReplaceAllStringFunc(content, maskedURL)
	return marks + secretWord().ReplaceAllStringFunc(content, func(found string) string {
		before := strings.IndexAny(found, " \t=")
		return found[:before+1] + notShown
	})
}

func (m *masker) replace(n *unstable.Node, text string) {
	from := int(n.Raw.Offset)
	m.edits = append(m.edits, edit{from, from + int(n.Raw.Length), text})
}

// apply returns the file with its edits. Of two at one place the larger one counts.
func (m *masker) apply() []byte {
	slices.SortStableFunc(m.edits, func(a, b edit) int {
		if a.from != b.from {
			return a.from - b.from
		}
		return b.to - a.to
	})
	var out []byte
	at := 0
	for _, e := range m.edits {
		if e.from < at {
			continue
		}
		out = append(append(out, m.data[at:e.from]...), e.text...)
		at = e.to
	}
	return append(out, m.data[at:]...)
}
