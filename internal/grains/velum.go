// SPDX-License-Identifier: Apache-2.0

package grains

import (
	"bytes"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/kubic-project/image-update-agent/internal/yamledit"
)

// Velum knows one kind of update: while keyReboot is true it offers to drain the
// node and reboot it. That key has other writers: transactional-update says so
// after an update of the system, Salt removes it after the reboot, a script of the
// admin node sets it to false at each boot. So whose it is stands beside it, in the
// same file, written in the same instant: what a rollback of the system, Salt or a
// restored backup does to one of them, it does to both
// (docs/dev/decisions/0070).
const (
	keyReboot = "tx_update_reboot_needed"
	// keyAsked lists the updates for which we have set keyReboot. While it is there,
	// keyReboot is ours.
	keyAsked = "image_update_reboot_asked"
	// keyDone lists the updates for which we had, and another writer has taken it back
	// since: a reboot has been. They wait all the same, so another would do no more.
	keyDone = "image_update_reboot_done"

	// rebootLine has a mark that transactional-update's sed takes away with the rest
	// of the line. Salt's dumps take it as well, and rewrite the lines of keyAsked.
	rebootLine = keyReboot + ": true # set by image-update-agent\n"
	// shortDigest is enough to tell the releases of a node apart.
	shortDigest = 12
)

// reboot is what the file says of a reboot.
type reboot struct {
	needed bool     // by whomever
	asked  []string // for what we have asked; nil: what needed says is not ours
	done   []string // for what one has been
}

// decide is what the file shall say while these updates wait. The same again
// changes nothing.
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

// waiting are the updates of a normalized grain for which Velum is to reboot.
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

// reboot reads. Where our own lines of keyAsked stand beside another line of
// keyReboot than ours, another writer has written that one since.
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

// rebootEdits make the file say what it shall while these updates wait. The line
// and whose it is are written together, so that each vouches for the other; also
// after a dump of Salt's, so that what another writer writes later is told apart.
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

// entry gives the lines and the value of a key, in unix line ends; nil: it is not
// there.
func (d document) entry(key string) ([]byte, *yaml.Node) {
	for _, e := range d.entries {
		if e.Key == key {
			return bytes.ReplaceAll(d.data[e.Start:e.End], []byte("\r\n"), []byte("\n")), yamledit.Resolve(e.Value)
		}
	}
	return nil, nil
}

// list reads a list of ours; nil: it is not there. What is none in it is nothing.
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

// wrote reports whether a key stands there in exactly these lines.
func (d document) wrote(lines string) bool {
	key, _, _ := strings.Cut(lines, ":")
	there, _ := d.entry(key)
	return there != nil && strings.TrimSuffix(string(there), "\n") == strings.TrimSuffix(lines, "\n")
}

// listLines are no lines for an empty list: the key is taken away.
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

// isNo: to Velum, all else is true. A string "false" is one to Ruby, but not to
// the column that Velum keeps it in.
func isNo(n *yaml.Node) bool {
	return isBool(n, false) || n.Kind == yaml.ScalarNode &&
		(strings.EqualFold(n.Value, "false") || n.Style == 0 && slices.Contains(nullWords, n.Value))
}

// isMarked: an anchor may be meant elsewhere, so such a line is left alone.
func isMarked(line []byte, value *yaml.Node) bool {
	return bytes.ContainsAny(line[:1], "&!*") || hasAnchor(value)
}
