// SPDX-License-Identifier: Apache-2.0

package grains

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

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
	for _, update := range g.Updates {
		if err := checkTexts(updateFields, update.values()); err != nil {
			return Grain{}, err
		}
	}
	for _, n := range g.NotAllowed {
		if err := checkTexts(notAllowedFields, n.values()); err != nil {
			return Grain{}, err
		}
	}
	g.Updates = g.Updates[:min(len(g.Updates), MaxUpdates)]
	g.NotAllowed = g.NotAllowed[:min(len(g.NotAllowed), MaxUpdates)]
	return g, nil
}

func checkTexts(fields, values []string) error {
	for i, value := range values {
		if err := checkText(fields[i], value); err != nil {
			return err
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

var updateFields = []string{"image", "change", "from", "to", "digest"}

// values returns the update's values in the order of updateFields, which is also the sort order.
func (u Update) values() []string { return []string{u.Image, u.Change, u.From, u.To, u.Digest} }

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
		g.updatesEntry(),
		g.notAllowedEntry(),
	}
}

func scalar(key, text string, says func(*yaml.Node) bool) entry {
	return entry{key: key, lines: key + ": " + text + "\n", says: says}
}

// quote needs no escapes, see checkText.
func quote(text string) string { return `"` + text + `"` }
