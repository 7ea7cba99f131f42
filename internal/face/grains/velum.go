// SPDX-License-Identifier: Apache-2.0

package grains

import (
	"bytes"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/kubic-project/image-update-agent/internal/base/yamledit"
)

// Velum knows one kind of update: while keyReboot is true it offers to drain the node and reboot it. That key has other
// writers: transactional-update sets it after an update of the system, Salt removes it after the reboot, a script of
// the admin node sets it to false at each boot. So its owner is recorded next to it, in the same file and the same
// write: a rollback of the system, Salt or a restored backup then affects both in the same way.
const (
	keyReboot = "tx_update_reboot_needed"
	// keyAsked lists the updates for which the agent has set keyReboot. While it exists, keyReboot belongs to the
	// agent.
	keyAsked = "image_update_reboot_asked"
	// keyDone lists the updates for which the agent had set it, and another writer has removed it since: the reboot has
	// happened. The updates still wait, so another reboot would not help.
	keyDone = "image_update_reboot_done"

	// rebootLine has a comment that transactional-update's sed removes with the rest of the line. Salt's dumps also
	// remove it, and rewrite the lines of keyAsked.
	rebootLine = keyReboot + ": true # set by image-update-agent\n"
	// shortDigest is enough to distinguish the releases of a node.
	shortDigest = 12
)

// reboot is the file's data about a reboot.
type reboot struct {
	needed bool     // requested by any writer
	asked  []string // updates of the agent's request; nil: needed belongs to another writer
	done   []string // updates whose reboot has happened
}

// decide returns the wanted data while these updates wait. It is idempotent.
func (r reboot) decide(waiting []string) reboot {
	next := reboot{needed: r.needed}
	for _, id := range waiting {
		if slices.Contains(r.done, id) || !r.needed && slices.Contains(r.asked, id) {
			next.done = append(next.done, id)
		}
	}
	foreign := r.needed && r.asked == nil
	if foreign {
		return next
	}
	next.needed = len(next.done) < len(waiting)
	if next.needed {
		next.asked = waiting
	}
	return next
}

// waiting returns the updates of a normalized grain for which Velum should reboot.
func (g Grain) waiting() []string {
	if !g.Velum {
		return nil
	}
	var ids []string
	for _, u := range g.Updates {
		_, hex, _ := strings.Cut(u.Digest, ":")
		ids = append(ids, hex[:min(len(hex), shortDigest)])
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// reboot returns the file's data. If the agent's lines of keyAsked are next to a line of keyReboot that is not the
// agent's, another writer has changed that since.
func (d document) reboot() reboot {
	r := reboot{asked: d.list(keyAsked), done: d.list(keyDone)}
	line, value := d.entry(keyReboot)
	if value == nil {
		return r
	}
	marked := isMarked(line, value)
	r.needed = marked || !isNo(value)
	if marked || r.needed && d.wrote(listLines(keyAsked, r.asked)) && !d.wrote(rebootLine) {
		r.asked = nil
	}
	return r
}

// rebootEdits returns the edits for the wanted data while these updates wait. The line and its owner are written
// together, so that each confirms the other; also after a dump of Salt, so that later changes by other writers are
// detected.
func (d document) rebootEdits(waiting []string) []yamledit.KeyEdit {
	now := d.reboot()
	next := now.decide(waiting)
	var edits []yamledit.KeyEdit
	set := func(key, lines string) {
		if line, _ := d.entry(key); lines != "" || line != nil {
			edits = append(edits, yamledit.KeyEdit{Key: key, Lines: lines})
		}
	}
	switch {
	case next.asked == nil:
		if now.needed && !next.needed {
			set(keyReboot, "")
		}
		set(keyAsked, "")
	case !now.needed || !d.wrote(listLines(keyAsked, next.asked)):
		set(keyReboot, rebootLine)
		set(keyAsked, listLines(keyAsked, next.asked))
	}
	if !slices.Equal(now.done, next.done) {
		set(keyDone, listLines(keyDone, next.done))
	}
	return edits
}

// entry returns the lines and the value of a key, with Unix line ends; nil if it does not exist.
func (d document) entry(key string) ([]byte, *yaml.Node) {
	for _, e := range d.entries {
		if e.Key == key {
			return bytes.ReplaceAll(d.data[e.Start:e.End], []byte("\r\n"), []byte("\n")), yamledit.Resolve(e.Value)
		}
	}
	return nil, nil
}

// list returns the elements of a list of the agent: nil if the key does not exist, empty if its value has no elements.
func (d document) list(key string) []string {
	_, value := d.entry(key)
	if value == nil {
		return nil
	}
	items := []string{}
	for _, item := range value.Content {
		items = append(items, item.Value)
	}
	return items
}

// wrote reports whether a key has exactly these lines.
func (d document) wrote(lines string) bool {
	key, _, _ := strings.Cut(lines, ":")
	there, _ := d.entry(key)
	return there != nil && strings.TrimSuffix(string(there), "\n") == strings.TrimSuffix(lines, "\n")
}

// listLines returns no lines for an empty list: the key is removed.
func listLines(key string, items []string) string {
	if len(items) == 0 {
		return ""
	}
	var lines strings.Builder
	lines.WriteString(key + ":\n")
	for _, item := range items {
		lines.WriteString("- " + quote(item) + "\n")
	}
	return lines.String()
}

// isNo reports whether Velum reads the value as false or null; it reads every other value as true. Ruby treats the
// string "false" as true, but Velum's database column does not.
func isNo(n *yaml.Node) bool {
	return isBool(n, false) || n.Kind == yaml.ScalarNode &&
		(strings.EqualFold(n.Value, "false") || n.Style == 0 && slices.Contains(nullWords, n.Value))
}

// isMarked reports whether the line has a tag, an anchor or an alias: the anchor may be used elsewhere, so such a line
// is not touched.
func isMarked(line []byte, value *yaml.Node) bool {
	return bytes.ContainsAny(line[:1], "&!*") || hasAnchor(value)
}
