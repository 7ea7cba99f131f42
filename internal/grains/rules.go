// SPDX-License-Identifier: Apache-2.0

package grains

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"slices"

	"gopkg.in/yaml.v3"

	"github.com/kubic-project/image-update-agent/internal/yamledit"
)

// Salt reads the file with PyYAML, on libyaml or without, and with rules of
// its own. What is checked here is where those are stricter than yaml.v3.

// oddText is what the parsers read differently, as seen in a line without its
// comment. Tabs and unusual breaks are legal in quotes, but too rare there to be
// worth telling apart.
var oddText = []struct {
	pattern *regexp.Regexp
	name    string
}{
	{regexp.MustCompile(`\t`), "a tab outside a comment"},
	{regexp.MustCompile("[\r\u0085\u2028\u2029]"), "a line break that is neither that of unix nor of windows"},
	{regexp.MustCompile("\ufeff"), "a byte order mark that is not at the beginning"},
	{regexp.MustCompile(`(^| )[|>][-+0-9]*#`), "a comment that touches | or >"},
}

// comment begins where YAML's do: at the line's begin or behind a space.
var comment = regexp.MustCompile(`(^| )#[^\r\x{85}\x{2028}\x{2029}]*`)

func checkLines(data []byte) error {
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	for i, line := range bytes.Split(data, []byte("\n")) {
		line = comment.ReplaceAll(bytes.TrimSuffix(line, []byte("\r")), nil)
		for _, odd := range oddText {
			if odd.pattern.Match(line) {
				return fmt.Errorf("line %d: %s", i+1, odd.name)
			}
		}
	}
	return nil
}

// errTag is what Salt's loader calls "could not determine a constructor".
var errTag = errors.New("a tag that salt does not read")

// noDigits are integers to PyYAML (resolver.py) on which its constructor fails, or
// Salt's, which strips leading zeros first.
var noDigits = regexp.MustCompile(`^([-+]?0[bx]_+|0+_+)$`)

// checkSalt refuses what YAML allows and Salt's loader
// (salt/utils/yamlloader.py) does not.
func checkSalt(n *yaml.Node) error {
	if n.Style&yaml.TaggedStyle != 0 && !slices.Contains(readTags[n.Kind], n.ShortTag()) {
		return fmt.Errorf("line %d: %w: %s", n.Line, errTag, n.ShortTag())
	}
	if n.Kind == yaml.ScalarNode && n.Style == 0 && noDigits.MatchString(n.Value) {
		return fmt.Errorf("line %d: a number without a digit: %s", n.Line, n.Value)
	}
	if n.Kind == yaml.ScalarNode && n.Style == 0 && isImpossibleDate(n.Value) {
		return fmt.Errorf("line %d: not a date: %s; in quotes it is text", n.Line, n.Value)
	}
	keys := map[string]int{}
	for i, child := range n.Content {
		isKey := n.Kind == yaml.MappingNode && i%2 == 0
		// "=" and "<<" have tags of their own, which are read as keys only.
		if !isKey && (isPlain(child, "=") || isPlain(child, "<<")) {
			return fmt.Errorf("line %d: %w: %s", child.Line, errTag, child.Value)
		}
		if key := yamledit.Resolve(child); isKey {
			name := python(key)
			if first := keys[name]; first > 0 {
				return fmt.Errorf("line %d: duplicate key %q, first on line %d", child.Line, key.Value, first)
			}
			keys[name] = child.Line
		}
		if err := checkSalt(child); err != nil {
			return err
		}
	}
	return nil
}

// readTags are the explicit tags that cannot fail on a node of that kind. The
// last is what Python 2 wrote for every string.
var readTags = map[yaml.Kind][]string{
	yaml.MappingNode:  {"!!map"},
	yaml.SequenceNode: {"!!seq"},
	yaml.ScalarNode:   {"!!str", "!!python/unicode"},
}

func hasAnchor(n *yaml.Node) bool {
	return n.Anchor != "" || n.Kind == yaml.AliasNode || slices.ContainsFunc(n.Content, hasAnchor)
}
