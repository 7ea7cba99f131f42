// SPDX-License-Identifier: Apache-2.0

package grains

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

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
			return document{}, fmt.Errorf("line %d: a merge key: the agent cannot edit the keys that it adds",
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
