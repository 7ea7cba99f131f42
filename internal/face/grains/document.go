// SPDX-License-Identifier: Apache-2.0

package grains

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/kubic-project/image-update-agent/internal/base/lazyregexp"
	"github.com/kubic-project/image-update-agent/internal/base/yamledit"
)

// busyKeys are the grains that the cluster's orchestrations set while they must not be disturbed: Salt has disabled
// timers and drains, reboots or deletes, and a pod restart would interfere. The most specific ones come first.
var busyKeys = []string{
	"removal_in_progress", "node_removal_in_progress", "update_in_progress", "migration_in_progress",
}

// Reboots reports whether the orchestration of a busy grain updates the system and reboots the node: in that boot it is
// the cause of the update, and does not prevent it.
func Reboots(busy string) bool {
	return busy == "update_in_progress" || busy == "migration_in_progress"
}

// document is a grains file that Salt can read and whose keys have their own lines. The zero document is an empty one.
type document struct {
	data    []byte // the source of the entries' positions
	file    *yamledit.File
	entries []yamledit.Entry
}

// parse checks that Salt's loader would accept the file, and that it can be edited.
func parse(data []byte) (document, error) {
	if isNothing(data) {
		data = nil
	}
	if err := checkLines(data); err != nil {
		return document{}, err
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
		if err := checkAnchors(doc, map[string]int{}); err != nil {
			return document{}, err
		}
	}
	for _, e := range entries {
		if e.Key == "<<" && data[e.Start] == '<' {
			return document{}, fmt.Errorf("line %d: a merge key: the agent cannot edit merged keys",
				file.Line(e.Start))
		}
		marked := strings.ContainsRune("&!*", rune(data[e.Start])) || hasAnchor(e.Value)
		if marked && (slices.Contains(ownKeys, e.Key) || e.Key == keyAsked || e.Key == keyDone) {
			return document{}, fmt.Errorf("line %d: an anchor, alias or tag in %s", file.Line(e.Start), e.Key)
		}
	}
	return document{data: data, file: file, entries: entries}, nil
}

// isNothing reports whether a file is empty although it has content. Salt leaves "{}" behind when it deletes the last
// grain.
func isNothing(data []byte) bool {
	return slices.Contains([]string{"{}", "null", "~"}, string(bytes.TrimSpace(data)))
}

// busy returns the first busy grain.
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

// edit returns the file's content with the grain, nil if it already has it.
func (d document) edit(g Grain) ([]byte, error) {
	var edits []yamledit.KeyEdit
	for _, want := range g.entries() {
		if !d.says(want) {
			edits = append(edits, yamledit.KeyEdit{Key: want.key, Lines: want.lines})
		}
	}
	return d.make(append(edits, d.rebootEdits(g.waiting())...), g.check)
}

// withdraw returns the file's content without a reboot request of the agent, nil if there is none.
func (d document) withdraw() ([]byte, error) {
	return d.make(d.rebootEdits(nil), checkNothing)
}

// make returns the file's content with the edits applied and checked, nil if there are none.
func (d document) make(edits []yamledit.KeyEdit, check func(document) error) ([]byte, error) {
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
	// As the next cycle will read it.
	edited, err := parse(data)
	if err == nil {
		err = check(edited)
	}
	if err != nil {
		return nil, fmt.Errorf("edited file: %w", err)
	}
	return data, nil
}

// check returns the missing part of the grain.
func (g Grain) check(d document) error {
	for _, want := range g.entries() {
		if !d.says(want) {
			return fmt.Errorf("%s does not have the intended value", want.key)
		}
	}
	if edits := d.rebootEdits(g.waiting()); len(edits) > 0 {
		return fmt.Errorf("%s does not have the intended value", edits[0].Key)
	}
	return nil
}

// checkNothing returns a remaining reboot request.
func checkNothing(d document) error {
	if edits := d.rebootEdits(nil); len(edits) > 0 {
		return fmt.Errorf("%s is still there", edits[0].Key)
	}
	return nil
}

func (d document) says(want entry) bool {
	i := slices.IndexFunc(d.entries, func(e yamledit.Entry) bool { return e.Key == want.key })
	if want.lines == "" || i < 0 {
		return want.lines == "" && i < 0
	}
	return want.says(d.entries[i].Value)
}

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

// minionUnit is the unit's name in SUSE and upstream packages.
const minionUnit = "salt-minion.service"

// mayCreate decides whether to create a missing file. A node that was removed from its cluster has salt-minion disabled
// and its grains deleted: a new file would make it look like a member without roles. A missing unit does not prevent
// it: on an admin node, Salt's minion runs in a pod.
func (s *Store) mayCreate() error {
	if s.seen.Load() {
		return fmt.Errorf("%s: %w: the file was deleted, as when a node is removed", s.path, ErrNoSalt)
	}
	if minionDisabled(s.root) {
		return fmt.Errorf("%s: %w: salt-minion is disabled", s.path, ErrNoSalt)
	}
	return nil
}

// minionDisabled checks the same as `systemctl is-enabled`: the unit exists, and it is masked or no target wants it.
func minionDisabled(root string) bool {
	admin := filepath.Join(root, "etc/systemd/system")
	if target, err := os.Readlink(filepath.Join(admin, minionUnit)); err == nil && target == os.DevNull {
		return true
	}
	installed := false
	for _, dir := range []string{"etc/systemd/system", "usr/lib/systemd/system", "lib/systemd/system"} {
		_, err := os.Stat(filepath.Join(root, dir, minionUnit))
		installed = installed || err == nil
	}
	for _, kind := range []string{"wants", "requires"} {
		// The pattern is valid, unless root contains a bracket.
		links, _ := filepath.Glob(filepath.Join(admin, "*."+kind, minionUnit))
		if len(links) > 0 {
			return false
		}
	}
	return installed
}

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
