// SPDX-License-Identifier: Apache-2.0

package grains

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/kubic-project/image-update-agent/internal/yamledit"
)

// busyKeys are the grains by which the cluster's orchestrations ask for
// quiet: Salt has disabled timers and drains, reboots or deletes, and
// restarting a pod now would work against it.
var busyKeys = []string{"update_in_progress", "migration_in_progress", "removal_in_progress", "node_removal_in_progress"}

// document is a grains file that Salt can read and whose keys stand on lines
// of their own. The zero document is an empty one.
type document struct {
	file    *yamledit.File
	entries []yamledit.Entry
}

// parse checks the file as Salt's loader would, and for what it cannot be
// edited with.
func parse(data []byte) (document, error) {
	if isNothing(data) {
		data = nil
	}
	if line := tabbedLine(data); line > 0 {
		return document{}, fmt.Errorf("line %d: a tab outside a comment", line)
	}
	// Elsewhere libyaml gives it a column, so that keys no longer line up.
	if bytes.LastIndex(data, []byte("\ufeff")) > 0 {
		return document{}, errors.New("a byte order mark that is not at the beginning")
	}
	file, err := yamledit.Parse(data)
	if err != nil {
		return document{}, err
	}
	entries, err := file.Entries()
	if err != nil {
		return document{}, err
	}
	for _, doc := range file.Documents {
		if err := checkSalt(doc); err != nil {
			return document{}, err
		}
	}
	for _, e := range entries {
		marked := strings.ContainsRune("&!*", rune(data[e.Start])) || hasAnchor(e.Value)
		if marked && slices.Contains(ownKeys, e.Key) {
			return document{}, fmt.Errorf("line %d: an anchor, alias or tag in %s", file.Line(e.Start), e.Key)
		}
	}
	return document{file: file, entries: entries}, nil
}

// isNothing tells the spellings of an empty file that are not empty. Salt
// itself leaves "{}" behind when it deletes the last grain.
func isNothing(data []byte) bool {
	return slices.Contains([]string{"{}", "null", "~"}, string(bytes.TrimSpace(data)))
}

// tabbedLine is the first line, from 1, with a tab outside a comment; 0 if
// there is none. PyYAML with libyaml reads some of those, PyYAML without it
// none, and which of them a node has is not known here. Tabs in quotes would be
// harmless, but are too rare to be told apart.
func tabbedLine(data []byte) int {
	for i, line := range bytes.Split(data, []byte("\n")) {
		line = append([]byte(" "), line...)
		if comment := bytes.Index(line, []byte(" #")); comment >= 0 {
			line = line[:comment]
		}
		if bytes.ContainsRune(line, '\t') {
			return i + 1
		}
	}
	return 0
}

// busy names the first grain that asks for quiet.
func (d document) busy() string {
	for _, key := range busyKeys {
		for _, e := range d.entries {
			if e.Key == key && isTrue(yamledit.Resolve(e.Value)) {
				return key
			}
		}
	}
	return ""
}

// edit returns the file's content with the grain said, nil if it says so
// already.
func (d document) edit(g Grain) ([]byte, error) {
	var edits []yamledit.KeyEdit
	for _, want := range g.entries() {
		if !d.says(want) {
			edits = append(edits, yamledit.KeyEdit{Key: want.key, Lines: want.lines})
		}
	}
	if len(edits) == 0 {
		return nil, nil
	}
	if d.file == nil {
		var err error
		if d, err = parse(nil); err != nil {
			return nil, err
		}
	}
	data, err := d.file.EditKeys(edits...)
	if err != nil {
		return nil, err
	}
	return data, prove(data, g)
}

// prove reads the result as it will be read next time.
func prove(data []byte, g Grain) error {
	edited, err := parse(data)
	if err != nil {
		return fmt.Errorf("edited file: %w", err)
	}
	for _, want := range g.entries() {
		if !edited.says(want) {
			return fmt.Errorf("edited file: %s does not say what it should", want.key)
		}
	}
	return nil
}

func (d document) says(want entry) bool {
	return slices.ContainsFunc(d.entries, func(e yamledit.Entry) bool {
		return e.Key == want.key && want.says(e.Value)
	})
}

// errTag is what Salt's loader calls "could not determine a constructor".
var errTag = errors.New("a tag that salt does not read")

// checkSalt refuses what YAML allows and Salt's loader
// (salt/utils/yamlloader.py) does not.
func checkSalt(n *yaml.Node) error {
	if n.Style&yaml.TaggedStyle != 0 && !slices.Contains(readTags, n.ShortTag()) {
		return fmt.Errorf("line %d: %w: %s", n.Line, errTag, n.ShortTag())
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

// readTags are the explicit tags that cannot fail. The last is what Python 2
// wrote for every string.
var readTags = []string{"!!str", "!!map", "!!seq", "!!python/unicode"}

func hasAnchor(n *yaml.Node) bool {
	return n.Anchor != "" || n.Kind == yaml.AliasNode || slices.ContainsFunc(n.Content, hasAnchor)
}
