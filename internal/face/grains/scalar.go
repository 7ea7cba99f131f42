// SPDX-License-Identifier: Apache-2.0

package grains

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/kubic-project/image-update-agent/internal/base/lazyregexp"
	"github.com/kubic-project/image-update-agent/internal/base/yamledit"
)

// Salt reads YAML 1.1, where more plain scalars are not strings than in yaml.v3's mix of 1.1 and 1.2: yes and off are
// booleans, 1:20 is 80.

var (
	trueWords  = []string{"yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"}
	falseWords = []string{"no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"}
	nullWords  = []string{"", "~", "null", "Null", "NULL"}
	// number matches the integers and floats of PyYAML's resolver.py, generously: an unnecessary match is only written
	// once more, in quotes.
	number = lazyregexp.New(`^[-+]?(0b[01_]+|0x[0-9a-fA-F_]+|` +
		`\.?[0-9][0-9_]*(:[0-5]?[0-9])*(\.[0-9_]*)?([eE][-+]?[0-9]+)?|` +
		`\.(inf|Inf|INF|nan|NaN|NAN))$`)
)

// isPlain reports whether a scalar is written as text, without quotes or tag.
func isPlain(n *yaml.Node, text string) bool {
	return n.Kind == yaml.ScalarNode && n.Style == 0 && n.Value == text
}

func isBool(n *yaml.Node, value bool) bool {
	words := falseWords
	if value {
		words = trueWords
	}
	return n.Kind == yaml.ScalarNode && n.Style == 0 && slices.Contains(words, n.Value)
}

// isTrue reports whether Salt's target GRAIN:true matches: it compares lower-case text, also of each element of a list,
// and uses the keys of a mapping as its values (salt.utils.data.subdict_match).
func isTrue(n *yaml.Node) bool {
	switch n = yamledit.Resolve(n); n.Kind {
	case yaml.SequenceNode:
		return slices.ContainsFunc(n.Content, func(item *yaml.Node) bool {
			return yamledit.Resolve(item).Kind != yaml.SequenceNode && isTrue(item)
		})
	case yaml.MappingNode:
		for i := 0; i < len(n.Content); i += 2 {
			if key := yamledit.Resolve(n.Content[i]); key.Kind == yaml.ScalarNode && python(key) == "true" {
				return true
			}
		}
		return false
	}
	return isBool(n, true) || strings.EqualFold(n.Value, "true")
}

// isString reports whether Salt reads a scalar as that string.
func isString(n *yaml.Node, text string) bool {
	if n.Kind != yaml.ScalarNode || n.Value != text || n.Style&yaml.TaggedStyle != 0 {
		return false
	}
	return n.Style != 0 || python(n) == text
}

// python returns the same spelling for scalars that are equal in Python, except for numbers: 1 and 1.0 differ, so at
// worst the agent edits a file that Salt does not read anyway. Strings are returned unchanged.
func python(n *yaml.Node) string {
	switch {
	case n.Style&^yaml.TaggedStyle != 0:
		return n.Value
	case slices.Contains(trueWords, n.Value):
		return "\x00true"
	case slices.Contains(falseWords, n.Value):
		return "\x00false"
	case slices.Contains(nullWords, n.Value):
		return "\x00null"
	case n.Value == "=" || n.Value == "<<" || number().MatchString(n.Value):
		return "\x00" + n.Value
	}
	return n.Value
}

// timestamp matches plain text that PyYAML reads as a date (the implicit resolver of resolver.py).
var timestamp = lazyregexp.New(`^(?:(\d{4})-(\d\d)-(\d\d)|` +
	`(\d{4})-(\d\d?)-(\d\d?)(?:[Tt]|[ \t]+)(\d\d?):(\d\d):(\d\d)(?:\.\d*)?` +
	`(?:[ \t]*(?:Z|[-+](\d\d?)(?::(\d\d))?))?)$`)

// isImpossibleDate reports whether PyYAML reads a text as a date but cannot construct one. Salt before 2018.3 then
// drops all grains of the file; later versions read the text.
func isImpossibleDate(text string) bool {
	found := timestamp().FindStringSubmatch(text)
	if found == nil {
		return false
	}
	var field [12]int
	for i, digits := range found[1:] {
		field[i+1], _ = strconv.Atoi(digits) // two or four digits, or none
	}
	year, month, day := field[1]+field[4], field[2]+field[5], field[3]+field[6]
	date := time.Date(year, time.Month(month), day, 0, 0, 0, 0, time.UTC)
	if year < 1 || date.Year() != year || date.Month() != time.Month(month) || date.Day() != day {
		return true
	}
	return field[7] > 23 || field[8] > 59 || field[9] > 59 || field[10]*60+field[11] >= 24*60
}
