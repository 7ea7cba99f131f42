// SPDX-License-Identifier: Apache-2.0

package grains

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"slices"

	"gopkg.in/yaml.v3"

	"github.com/kubic-project/image-update-agent/internal/base/lazyregexp"
	"github.com/kubic-project/image-update-agent/internal/base/yamledit"
)

// Salt reads the file with PyYAML, with or without libyaml, and with its own rules. These are the checks where they are
// stricter than yaml.v3.

// oddText matches text that the parsers read differently, in a line without its comment. Tabs and unusual breaks are
// legal in quotes, but too rare there to be distinguished.
var oddText = []struct {
	pattern func() *regexp.Regexp
	name    string
}{
	{lazyregexp.New(`\t`), "a tab outside a comment"},
	{lazyregexp.New("[\r\u0085\u2028\u2029]"), "a line break that is neither that of unix nor of windows"},
	{lazyregexp.New("\ufeff"), "a byte order mark that is not at the beginning"},
	{lazyregexp.New(`(^| )[|>][-+0-9]*#`), "a comment that touches | or >"},
}

// comment matches YAML comments: at the start of the line or after a space.
var comment = lazyregexp.New(`(^| )#[^\r\x{85}\x{2028}\x{2029}]*`)

func checkLines(data []byte) error {
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	for i, line := range bytes.Split(data, []byte("\n")) {
		line = comment().ReplaceAll(bytes.TrimSuffix(line, []byte("\r")), nil)
		for _, odd := range oddText {
			if odd.pattern().Match(line) {
				return fmt.Errorf("line %d: %s", i+1, odd.name)
			}
		}
	}
	return nil
}

// errTag is Salt's error "could not determine a constructor".
var errTag = errors.New("a tag that salt does not read")

// noDigits matches integers by PyYAML's resolver.py on which its constructor fails, or Salt's, which strips leading
// zeros first.
var noDigits = lazyregexp.New(`^([-+]?0[bx]_+|0+_+)$`)

// checkSalt rejects YAML that Salt's loader (salt/utils/yamlloader.py) does not accept.
func checkSalt(n *yaml.Node) error {
	if n.Style&yaml.TaggedStyle != 0 && !slices.Contains(readTags[n.Kind], n.ShortTag()) {
		return fmt.Errorf("line %d: %w: %s", n.Line, errTag, n.ShortTag())
	}
	if n.Kind == yaml.ScalarNode && n.Style == 0 && noDigits().MatchString(n.Value) {
		return fmt.Errorf("line %d: a number without a digit: %s", n.Line, n.Value)
	}
	if n.Kind == yaml.ScalarNode && n.Style == 0 && isImpossibleDate(n.Value) {
		return fmt.Errorf("line %d: not a date: %s; in quotes it is text", n.Line, n.Value)
	}
	keys := map[string]int{}
	for i, child := range n.Content {
		isKey := n.Kind == yaml.MappingNode && i%2 == 0
		// "=" and "<<" have their own tags, which are accepted only as keys.
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

// checkAnchors rejects an anchor that a document has twice: PyYAML rejects the file, yaml.v3 takes the last one. lines
// has the line of each anchor.
func checkAnchors(n *yaml.Node, lines map[string]int) error {
	if first, ok := lines[n.Anchor]; ok {
		return fmt.Errorf("line %d: duplicate anchor &%s, first on line %d", n.Line, n.Anchor, first)
	}
	if n.Anchor != "" {
		lines[n.Anchor] = n.Line
	}
	for _, child := range n.Content {
		if err := checkAnchors(child, lines); err != nil {
			return err
		}
	}
	return nil
}

// readTags are the explicit tags that cannot fail on a node of that kind. The last is the one that Python 2 wrote for
// every string.
var readTags = map[yaml.Kind][]string{
	yaml.MappingNode:  {"!!map"},
	yaml.SequenceNode: {"!!seq"},
	yaml.ScalarNode:   {"!!str", "!!python/unicode"},
}

func hasAnchor(n *yaml.Node) bool {
	return n.Anchor != "" || n.Kind == yaml.AliasNode || slices.ContainsFunc(n.Content, hasAnchor)
}
