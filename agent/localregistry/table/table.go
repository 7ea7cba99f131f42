// SPDX-License-Identifier: Apache-2.0

// Package table is the format of the local registry's table, which the daemon writes and the program that answers
// containerd reads. That program has no other code of the agent, so this package imports only the standard library.
package table

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// File is the name of the table in the state directory.
const File = "local-registry.json"

// MaxFile is the maximum size of the file, in bytes: JSON writes some characters as six bytes.
const MaxFile = 9 << 20

// version is the version of the file's format. A program that finds a newer one answers nothing.
const version = 1

// Entry is a floating tag and the manifest for its HEAD.
type Entry struct {
	Registry   string `json:"registry"`   // registry.suse.com; the namespace in hosts.toml
	Repository string `json:"repository"` // caasp/v4/velum
	Tag        string `json:"tag"`        // 4.0.0-rev1
	Digest     string `json:"digest"`     // sha256:...
	MediaType  string `json:"mediaType"`
	Size       int64  `json:"size"` // of the manifest, in bytes
}

// Table is the local registry's table, sorted by registry, repository and tag, without duplicate tags.
type Table struct {
	Entries []Entry `json:"entries"`
}

// file is the content of the file.
type file struct {
	SchemaVersion int `json:"schemaVersion"`
	Table
}

// Format returns the content of the file, or why the table cannot be used.
func Format(t Table) ([]byte, error) {
	if err := t.Check(); err != nil {
		return nil, err
	}
	if t.Entries == nil {
		t.Entries = []Entry{}
	}
	data, err := json.MarshalIndent(file{version, t}, "", "  ")
	if err != nil {
		return nil, err
	}
	return append(data, '\n'), nil
}

// Parse returns the table in a file's content.
func Parse(data []byte) (Table, error) {
	var f file
	decoder := json.NewDecoder(bytes.NewReader(data))
	if err := decoder.Decode(&f); err != nil {
		return Table{}, errors.New("not a table in JSON") // the cause quotes the file
	}
	if decoder.More() {
		return Table{}, errors.New("more than a table")
	}
	if f.SchemaVersion != version {
		return Table{}, fmt.Errorf("version %d, want %d", f.SchemaVersion, version)
	}
	if err := f.Check(); err != nil {
		return Table{}, err
	}
	return f.Table, nil
}

// Image returns REGISTRY/REPOSITORY:TAG.
func (e Entry) Image() string { return e.Registry + "/" + e.Repository + ":" + e.Tag }

// Tag returns the entry of a floating tag.
func (t Table) Tag(registry, repository, tag string) (Entry, bool) {
	n, is := slices.BinarySearchFunc(t.Entries, Entry{Registry: registry, Repository: repository, Tag: tag}, compare)
	if !is {
		return Entry{}, false
	}
	return t.Entries[n], true
}

// Digest returns an entry of a repository that names the digest.
func (t Table) Digest(registry, repository, digest string) (Entry, bool) {
	for _, e := range t.Entries {
		if e.Digest == digest && e.Repository == repository && e.Registry == registry {
			return e, true
		}
	}
	return Entry{}, false
}

// Limits of a table. containerd accepts no manifest above 8 MiB.
const (
	MaxEntries  = 8192
	MaxText     = 255     // in bytes: a name, a tag or a media type
	MaxTexts    = 1 << 20 // of all entries
	MaxManifest = 8 << 20
)

// Check returns why a table cannot be used: it is too large, not sorted, names a tag twice, or has an entry that is not
// a valid answer to a HEAD.
func (t Table) Check() error {
	if len(t.Entries) > MaxEntries {
		return fmt.Errorf("%d entries, at most %d", len(t.Entries), MaxEntries)
	}
	texts := 0
	for i, e := range t.Entries {
		if texts += e.Texts(); texts > MaxTexts {
			return fmt.Errorf("entry %d: its names have more than %d bytes in all", i, MaxTexts)
		}
		if err := e.Check(); err != nil {
			return fmt.Errorf("entry %d: %w", i, err)
		}
		if i > 0 && compare(t.Entries[i-1], e) >= 0 {
			return fmt.Errorf("entry %d: out of order or duplicate", i)
		}
	}
	return nil
}

// compare orders entries by registry, repository and tag.
func compare(a, b Entry) int {
	return cmp.Or(strings.Compare(a.Registry, b.Registry),
		strings.Compare(a.Repository, b.Repository), strings.Compare(a.Tag, b.Tag))
}

// Texts returns the length of the texts of an entry.
func (e Entry) Texts() int {
	return len(e.Registry) + len(e.Repository) + len(e.Tag) + len(e.MediaType)
}

// Check returns why an entry is not a valid answer to a HEAD.
func (e Entry) Check() error {
	for _, field := range []struct{ name, text string }{
		{"registry", e.Registry}, {"repository", e.Repository}, {"tag", e.Tag}, {"mediaType", e.MediaType},
	} {
		if field.text == "" || len(field.text) > MaxText || strings.ContainsFunc(field.text, notHeader) {
			return errors.New(field.name + ": empty, too long, or with characters that a header cannot have")
		}
	}
	switch {
	case !isSHA256(e.Digest):
		return errors.New("digest: not sha256")
	case e.Size < 1 || e.Size > MaxManifest:
		return fmt.Errorf("size: %d bytes, want 1 to %d", e.Size, MaxManifest)
	}
	return nil
}

// isSHA256 reports whether a text is a digest in the only algorithm of the table.
func isSHA256(digest string) bool {
	hex, is := strings.CutPrefix(digest, "sha256:")
	return is && len(hex) == 64 && strings.Trim(hex, "0123456789abcdef") == ""
}

// notHeader reports a character that can be neither in a URL's name nor in a header's value.
func notHeader(r rune) bool { return r <= ' ' || r > '~' }
