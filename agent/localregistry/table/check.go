// SPDX-License-Identifier: Apache-2.0

package table

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
)

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
