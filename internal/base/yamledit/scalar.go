// SPDX-License-Identifier: Apache-2.0

package yamledit

import (
	"bytes"
	"encoding/json"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/kubic-project/image-update-agent/internal/base/lazyregexp"
)

// Scalar returns the byte range [start, end) of a scalar, including quotes and without anchor and tag, or of an alias
// ("*name"). Empty values, block scalars and plain scalars that span lines have no range.
func (f *File) Scalar(n *yaml.Node) (start, end int, err error) {
	start, err = f.Offset(n)
	if err != nil {
		return 0, 0, err
	}
	if n.Kind == yaml.AliasNode {
		return f.spelled(n, start, "*"+n.Value)
	}
	if n.Kind != yaml.ScalarNode {
		return 0, 0, ErrorAt(n, "not a scalar")
	}
	start += len(properties().Find(f.data[start:]))
	var quoted []byte
	switch {
	case n.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0:
		return 0, 0, ErrorAt(n, "a block scalar")
	case n.Style&yaml.SingleQuotedStyle != 0:
		quoted = singleQuoted().Find(f.data[start:])
	case n.Style&yaml.DoubleQuotedStyle != 0:
		quoted = doubleQuoted().Find(f.data[start:])
	case n.Value == "":
		return 0, 0, ErrorAt(n, "an empty value")
	default:
		return f.spelled(n, start, n.Value)
	}
	if quoted == nil || !f.spells(quoted, n.Value) {
		return 0, 0, ErrorAt(n, "the quoted scalar was not found where the parser saw it")
	}
	return start, start + len(quoted), nil
}

const (
	breaks   = "\n\r\u0085\u2028\u2029" // YAML 1.1's, as in breakLen
	property = "[&!][^ \t" + breaks + "]*(?:[ \t" + breaks + "]|#[^" + breaks + "]*)*"
)

var (
	// properties matches anchor and tag with the space or comments after them. No scalar can begin with & or !.
	properties   = lazyregexp.New("^(?:" + property + ")*")
	singleQuoted = lazyregexp.New(`^'(?:[^']|'')*'`)
	doubleQuoted = lazyregexp.New(`(?s)^"(?:[^"\\]|\\.)*"`)
)

func (f *File) spelled(n *yaml.Node, start int, text string) (int, int, error) {
	if !bytes.HasPrefix(f.data[start:], []byte(text)) {
		return 0, 0, ErrorAt(n, "a plain scalar over several lines")
	}
	return start, start + len(text), nil
}

// spells reports whether the quoted bytes decode to value.
func (f *File) spells(quoted []byte, value string) bool {
	if f.json {
		var s string
		return json.Unmarshal(quoted, &s) == nil && s == value
	}
	inner := quoted[1 : len(quoted)-1]
	if !bytes.ContainsAny(inner, `\'`+breaks) {
		return string(inner) == value
	}
	var n yaml.Node
	if yaml.Unmarshal(quoted, &n) != nil || len(n.Content) != 1 {
		return false
	}
	return n.Content[0].Value == value
}

// Replace returns the edit that gives a scalar another value in its own quoting. A plain scalar accepts only a value
// that is plain everywhere: letters, digits and ._-/:@+ beginning with a letter or digit, not ending with a colon.
func (f *File) Replace(n *yaml.Node, value string) (Edit, error) {
	start, end, err := f.Scalar(n)
	if err != nil {
		return Edit{}, err
	}
	if n.Kind != yaml.ScalarNode {
		return Edit{}, ErrorAt(n, "an alias")
	}
	for _, r := range value {
		if isControl(r) || breakLen([]byte(string(r))) > 0 {
			return Edit{}, ErrorAt(n, "value %q: control character or line break", value)
		}
	}
	switch {
	case f.json:
		return Edit{start, end, quoteJSON(value)}, nil
	case n.Style&yaml.SingleQuotedStyle != 0:
		return Edit{start, end, "'" + strings.ReplaceAll(value, "'", "''") + "'"}, nil
	case n.Style&yaml.DoubleQuotedStyle != 0:
		return Edit{start, end, `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(value) + `"`}, nil
	case !plainSafe(value):
		return Edit{}, ErrorAt(n, "value %q: needs quotes, and there are none to keep", value)
	}
	return Edit{start, end, value}, nil
}

// emptyValue matches the colon after a key, in the line of the key, and what may follow it where no value is written.
var emptyValue = lazyregexp.New("^[ \t]*:(?:[ \t,}" + breaks + "]|$)")

// ReplaceNull returns the edit that gives a key another value than null: in its place, or after the colon if nothing is
// written there. A null with a tag or an anchor is an error.
func (f *File) ReplaceNull(key, null *yaml.Node, value string) (Edit, error) {
	switch {
	case null.Anchor != "" || null.Style&yaml.TaggedStyle != 0:
		return Edit{}, ErrorAt(null, "null with a tag or an anchor")
	case null.Value != "":
		return f.Replace(null, value)
	case !plainSafe(value):
		return Edit{}, ErrorAt(null, "value %q: needs quotes", value)
	}
	_, end, err := f.Scalar(key)
	if err != nil {
		return Edit{}, err
	}
	colon := emptyValue().Find(f.data[end:])
	if colon == nil {
		return Edit{}, ErrorAt(null, "no colon after the key")
	}
	end += bytes.IndexByte(colon, ':') + 1
	return Edit{end, end, " " + value}, nil
}

func plainSafe(value string) bool {
	for i := range len(value) {
		c := value[i]
		alnum := c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z'
		if !alnum && (i == 0 || !strings.ContainsRune("._-/:@+", rune(c))) {
			return false
		}
	}
	return value != "" && !strings.HasSuffix(value, ":")
}

// Same reports whether two nodes are written with the same kinds, tags, values, anchors, aliases and styles in the same
// order. It ignores comments and positions: yaml.v3 attaches a comment to one neighbour or the other depending on blank
// lines; edits keep the bytes of comments anyway. instead maps nodes of a to their replacements.
func Same(a, b *yaml.Node, instead map[*yaml.Node]*yaml.Node) bool {
	if other, ok := instead[a]; ok {
		a = other
	}
	if a.Kind != b.Kind || a.Value != b.Value || a.Anchor != b.Anchor || a.Style != b.Style ||
		a.ShortTag() != b.ShortTag() || len(a.Content) != len(b.Content) {
		return false
	}
	for i := range a.Content {
		if !Same(a.Content[i], b.Content[i], instead) {
			return false
		}
	}
	return true
}
