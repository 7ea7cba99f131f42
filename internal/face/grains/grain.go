// SPDX-License-Identifier: Apache-2.0

package grains

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"gopkg.in/yaml.v3"
)

// Limits of the grain. Salt sends all grains at each authentication and refresh, so they are kept small.
const (
	// MaxUpdates limits Grain.Updates; Count still counts all of them.
	MaxUpdates = 64
	// maxText limits each string, in bytes: a reference is at most 255 bytes of repository and 128 of tag.
	maxText = 512
)

// The agent's top-level keys, in the order in which new ones are appended. None ends in a name that
// transactional-update edits with an unanchored regular expression (tx_update_reboot_needed, tx_update_failed).
const (
	keyAvailable = "image_update_available"
	keyState     = "image_update_state"
	keyReason    = "image_update_reason"
	keyCount     = "image_update_count"
	keyUpdates   = "image_updates"
	// keyNotAllowed exists only while a newer release is not allowed.
	keyNotAllowed = "image_updates_not_allowed"
)

var ownKeys = []string{keyAvailable, keyState, keyReason, keyCount, keyUpdates, keyNotAllowed}

// Update is one image with a newer release.
type Update struct {
	Image  string // repository with its registry, no tag
	Change string // convert, rebuild, revision, patch, minor or major
	From   string // running tag; may be empty
	To     string // offered tag; may be empty if only the digest is known
	Digest string // offered digest
	// Severity and Fixes, separated by spaces, are what the catalog says of it; as many Fixes as fit.
	Severity, Fixes string
}

// NotAllowed is a newer release that the configuration refuses.
type NotAllowed struct {
	Image string // repository with its registry, no tag
	Tag   string
	Rule  string // updates, max, allow, deny or kubeadm
	Key   string // the setting that would allow it, as in "updates: minor"
}

// Grain is the content of the node's keys.
type Grain struct {
	Available bool     // staged releases wait for approval
	State     string   // as in the status: applying, failed, held, stale, unchecked, staged, current
	Reason    string   // of the state, for people; any text, see reason; empty: the key is removed
	Count     int      // of all updates, including those beyond MaxUpdates
	Updates   []Update // in any order; at most MaxUpdates are written, sorted
	// NotAllowed is sorted and limited like Updates; empty: the key is removed.
	NotAllowed []NotAllowed
	// Velum: an unmodified Velum should drain and reboot the node for the updates.
	Velum bool
}

// normalized returns the grain with sorted and limited updates, and a reason of one line. Any other text with a special
// meaning in YAML or Salt (which evaluates u'...') is an error: tags, digests and repositories never contain one.
func (g Grain) normalized() (Grain, error) {
	if err := checkText("state", g.State); err != nil {
		return Grain{}, err
	}
	g.Reason = reason(g.Reason)
	g.Updates = slices.SortedFunc(slices.Values(g.Updates), func(a, b Update) int {
		return slices.Compare(a.values(), b.values())
	})
	g.NotAllowed = slices.SortedFunc(slices.Values(g.NotAllowed), func(a, b NotAllowed) int {
		return slices.Compare(a.values(), b.values())
	})
	if err := cmp.Or(checkTexts(updateFields, g.Updates), checkTexts(notAllowedFields, g.NotAllowed)); err != nil {
		return Grain{}, err
	}
	g.Updates = g.Updates[:min(len(g.Updates), MaxUpdates)]
	g.NotAllowed = g.NotAllowed[:min(len(g.NotAllowed), MaxUpdates)]
	return g, nil
}

// item is an element of a list: its values, in the order of its fields.
type item interface{ values() []string }

func checkTexts[I item](fields []string, items []I) error {
	for _, item := range items {
		for i, value := range item.values() {
			if err := checkText(fields[i], value); err != nil {
				return err
			}
		}
	}
	return nil
}

func checkText(what, text string) error {
	if len(text) > maxText {
		return fmt.Errorf("%s: %.64q: more than %d bytes", what, text, maxText)
	}
	for _, r := range text {
		if r < ' ' || r > '~' || strings.ContainsRune(`"'\`, r) {
			return fmt.Errorf("%s: %.64q: character %q", what, text, r)
		}
	}
	return nil
}

var updateFields = []string{"image", "change", "from", "to", "digest", "severity", "fixes"}

// values returns the update's values in the order of updateFields, which is also the sort order.
func (u Update) values() []string {
	return []string{u.Image, u.Change, u.From, u.To, u.Digest, u.Severity, u.Fixes}
}

var notAllowedFields = []string{"image", "tag", "rule", "key"}

func (n NotAllowed) values() []string { return []string{n.Image, n.Tag, n.Rule, n.Key} }

// entry is one top-level key: its lines, and how to recognise it in any other spelling, so that a file rewritten by
// Salt is not written again. Without lines the key must not exist.
type entry struct {
	key, lines string
	says       func(*yaml.Node) bool
}

// entries returns the keys of a normalized grain.
func (g Grain) entries() []entry {
	available, count := strconv.FormatBool(g.Available), strconv.Itoa(g.Count)
	return []entry{
		scalar(keyAvailable, available, func(n *yaml.Node) bool { return isBool(n, g.Available) }),
		scalar(keyState, quote(g.State), func(n *yaml.Node) bool { return isString(n, g.State) }),
		g.reasonEntry(),
		scalar(keyCount, count, func(n *yaml.Node) bool { return isPlain(n, count) }),
		list(keyUpdates, updateFields, g.Updates),
		g.notAllowedEntry(),
	}
}

func scalar(key, text string, says func(*yaml.Node) bool) entry {
	return entry{key: key, lines: key + ": " + text + "\n", says: says}
}

// quote needs no escapes, see checkText.
func quote(text string) string { return `"` + text + `"` }

// notAllowedEntry returns an empty entry if all newer releases are allowed.
func (g Grain) notAllowedEntry() entry {
	if len(g.NotAllowed) == 0 {
		return entry{key: keyNotAllowed}
	}
	return list(keyNotAllowed, notAllowedFields, g.NotAllowed)
}

// list returns the entry of a list of mappings with the same fields.
func list[I item](key string, fields []string, items []I) entry {
	says := func(n *yaml.Node) bool {
		if n.Kind != yaml.SequenceNode || len(n.Content) != len(items) {
			return false
		}
		for i, item := range n.Content {
			if !saysItem(item, fields, items[i].values()) {
				return false
			}
		}
		return true
	}
	return entry{key, itemLines(key, fields, items), says}
}

// itemLines writes the list without indentation, as Salt's dumps do.
func itemLines[I item](key string, fields []string, items []I) string {
	if len(items) == 0 {
		return key + ": []\n"
	}
	var b strings.Builder
	b.WriteString(key + ":\n")
	for _, item := range items {
		for i, value := range item.values() {
			if isLeftOut(fields[i], value) {
				continue
			}
			mark := "-"
			if i > 0 {
				mark = " "
			}
			fmt.Fprintf(&b, "%s %s: %s\n", mark, fields[i], quote(value))
		}
	}
	return b.String()
}

// isLeftOut reports whether an entry lacks a field: without a catalog, grains stay as they were.
func isLeftOut(field, value string) bool {
	return value == "" && (field == "severity" || field == "fixes")
}

// saysItem accepts the fields in any order: Salt's dumps sort them.
func saysItem(n *yaml.Node, fields, values []string) bool {
	count := 0
	for i, value := range values {
		if !isLeftOut(fields[i], value) {
			count++
		}
	}
	if n.Kind != yaml.MappingNode || len(n.Content) != 2*count {
		return false
	}
	for i := 0; i < len(n.Content); i += 2 {
		field := slices.Index(fields, n.Content[i].Value)
		if field < 0 || !isString(n.Content[i], fields[field]) || !isString(n.Content[i+1], values[field]) {
			return false
		}
	}
	return true
}

// maxReason limits the reason, in bytes: enough for the status' first sentence, small enough for every refresh.
const maxReason = 200

// reason returns the reason as written to the grain: one line without special meaning in YAML and Salt. Unlike tags and
// digests it may quote others' text, so characters that cannot be written are dropped without an error.
func reason(text string) string {
	text = strings.Join(strings.Fields(strings.Map(reasonRune, text)), " ")
	if len(text) <= maxReason {
		return text
	}
	end := maxReason
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return strings.TrimRight(text[:end], " ")
}

// reasonRune returns the replacement of a character; negative: it is dropped.
func reasonRune(r rune) rune {
	switch {
	case unicode.IsSpace(r):
		return ' '
	case r == '"', r == '\'', r == '\\':
		return '`' // needs no escape, and Salt does not evaluate u'...'
	case r == '#':
		return -1 // after | or > YAML parsers disagree, see oddText
	case r == utf8.RuneError, r > 0xFFFF, !unicode.IsPrint(r):
		return -1 // old PyYAML supports only the basic plane
	}
	return r
}

// reasonEntry returns an empty entry if there is no reason.
func (g Grain) reasonEntry() entry {
	if g.Reason == "" {
		return entry{key: keyReason}
	}
	return scalar(keyReason, quote(g.Reason), func(n *yaml.Node) bool { return isString(n, g.Reason) })
}
