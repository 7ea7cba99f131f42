// SPDX-License-Identifier: Apache-2.0

package ownhost

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/opencontainers/go-digest"
)

// What a table may have. containerd takes no manifest above 8 MiB.
const (
	MaxEntries  = 512
	MaxText     = 255 // bytes of a name, a tag or a media type
	MaxManifest = 8 << 20
)

// Check returns why a table cannot be used: it is too large, not sorted, names a tag twice, or has an entry that is no
// answer to a HEAD.
func (t Table) Check() error {
	if len(t.Entries) > MaxEntries {
		return fmt.Errorf("%d entries, at most %d", len(t.Entries), MaxEntries)
	}
	for i, e := range t.Entries {
		if err := e.check(); err != nil {
			return fmt.Errorf("entry %d: %w", i, err)
		}
		if i > 0 && compare(t.Entries[i-1], e) >= 0 {
			return fmt.Errorf("entry %d: not sorted, or twice", i)
		}
	}
	return nil
}

// compare orders entries by registry, repository and tag.
func compare(a, b Entry) int {
	return cmp.Or(strings.Compare(a.Registry, b.Registry),
		strings.Compare(a.Repository, b.Repository), strings.Compare(a.Tag, b.Tag))
}

func (e Entry) check() error {
	for _, field := range []struct{ name, text string }{
		{"registry", e.Registry}, {"repository", e.Repository}, {"tag", e.Tag}, {"mediaType", e.MediaType},
	} {
		if field.text == "" || len(field.text) > MaxText || strings.ContainsFunc(field.text, notHeader) {
			return errors.New(field.name + ": empty, too long, or not in the letters of a header")
		}
	}
	switch {
	case e.Digest.Validate() != nil || e.Digest.Algorithm() != digest.SHA256:
		return errors.New("digest: not sha256")
	case e.Size < 1 || e.Size > MaxManifest:
		return fmt.Errorf("size: %d bytes, want 1 to %d", e.Size, MaxManifest)
	}
	return nil
}

// notHeader reports what neither a name in a URL nor the value of a header has.
func notHeader(r rune) bool { return r <= ' ' || r > '~' }

// Tag returns the entry of a floating tag.
func (t Table) Tag(registry, repository, tag string) (Entry, bool) {
	return t.find(func(e Entry) bool {
		return e.Tag == tag && e.Repository == repository && e.Registry == registry
	})
}

// Digest returns an entry of a repository that names the digest.
func (t Table) Digest(registry, repository string, d digest.Digest) (Entry, bool) {
	return t.find(func(e Entry) bool {
		return e.Digest == d && e.Repository == repository && e.Registry == registry
	})
}

func (t Table) find(is func(Entry) bool) (Entry, bool) {
	for _, e := range t.Entries {
		if is(e) {
			return e, true
		}
	}
	return Entry{}, false
}
