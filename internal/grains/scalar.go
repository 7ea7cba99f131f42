// SPDX-License-Identifier: Apache-2.0

package grains

import (
	"regexp"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
)

// Salt reads YAML 1.1, where more plain scalars are no strings than in
// yaml.v3's mix of 1.1 and 1.2: yes and off are booleans, 1:20 is 80.

var (
	trueWords  = []string{"yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"}
	falseWords = []string{"no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"}
	nullWords  = []string{"", "~", "null", "Null", "NULL"}
	// number holds the integers and floats of PyYAML's resolver.py, generously:
	// what it matches needlessly is only written once more, in quotes.
	number = regexp.MustCompile(`^[-+]?(0b[01_]+|0x[0-9a-fA-F_]+|` +
		`\.?[0-9][0-9_]*(:[0-5]?[0-9])*(\.[0-9_]*)?([eE][-+]?[0-9]+)?|` +
		`\.(inf|Inf|INF|nan|NaN|NAN))$`)
)

// isPlain tells a scalar written as text, without quotes or tag.
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

// isTrue also accepts the string: Salt's targeting compares lower-case text.
func isTrue(n *yaml.Node) bool {
	return isBool(n, true) || n.Kind == yaml.ScalarNode && strings.EqualFold(n.Value, "true")
}

// isString tells a scalar that Salt reads as that string.
func isString(n *yaml.Node, text string) bool {
	if n.Kind != yaml.ScalarNode || n.Value != text || n.Style&yaml.TaggedStyle != 0 {
		return false
	}
	return n.Style != 0 || python(n) == text
}

// python spells a scalar so that two which are equal in Python are spelt
// alike, numbers excepted: 1 and 1.0 are not, which at worst lets us edit a
// file that Salt does not read anyway. Strings are spelt as themselves.
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
	case n.Value == "=" || n.Value == "<<" || number.MatchString(n.Value):
		return "\x00" + n.Value
	}
	return n.Value
}
