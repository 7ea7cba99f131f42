// SPDX-License-Identifier: Apache-2.0

package grains

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/kubic-project/image-update-agent/internal/yamledit"
)

// busyKeys are the grains by which the cluster's orchestrations ask for
// quiet: Salt has disabled timers and drains, reboots or deletes, and
// restarting a pod now would work against it.
var busyKeys = []string{
	"update_in_progress", "migration_in_progress", "removal_in_progress", "node_removal_in_progress",
}

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
	i := slices.IndexFunc(d.entries, func(e yamledit.Entry) bool { return e.Key == want.key })
	if want.lines == "" || i < 0 {
		return want.lines == "" && i < 0
	}
	return want.says(d.entries[i].Value)
}
