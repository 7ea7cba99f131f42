// SPDX-License-Identifier: Apache-2.0

package agenttest

import (
	"context"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/ownhost"
)

// OwnHostUnderTest is an ownhost.Store and the own host's side of it.
type OwnHostUnderTest struct {
	Store ownhost.Store
	// Read is the table that the own host answers from.
	Read func(t *testing.T) ownhost.Table
	// Written changes with each write.
	Written func(t *testing.T) string
}

// OwnHostEntry is an entry of a table.
func OwnHostEntry(repository, tag, content string) ownhost.Entry {
	return ownhost.Entry{
		Registry: "registry.suse.com", Repository: repository, Tag: tag, Digest: digest.FromString(content),
		MediaType: "application/vnd.oci.image.index.v1+json", Size: int64(len(content)),
	}
}

// TestOwnHost asserts what an ownhost.Store promises.
func TestOwnHost(t *testing.T, open func(t *testing.T) OwnHostUnderTest) {
	etcd, velum := OwnHostEntry("caasp/v4/etcd", "3.4.13-rev1", "e"), OwnHostEntry("caasp/v4/velum", "4.0.0-rev1", "v")
	both := ownhost.Table{Entries: []ownhost.Entry{etcd, velum}}
	t.Run("the last table is read, whole", func(t *testing.T) {
		s := open(t)
		for _, want := range []ownhost.Table{both, {Entries: []ownhost.Entry{velum}}, both, {}} {
			require.NoError(t, s.Store.Save(t.Context(), want))
			got := s.Read(t)
			assert.ElementsMatch(t, want.Entries, got.Entries)
		}
	})
	t.Run("an equal table is not written", func(t *testing.T) {
		s := open(t)
		require.NoError(t, s.Store.Save(t.Context(), both))
		before := s.Written(t)
		require.NoError(t, s.Store.Save(t.Context(), ownhost.Table{Entries: []ownhost.Entry{etcd, velum}}))
		assert.Equal(t, before, s.Written(t))
		require.NoError(t, s.Store.Save(t.Context(), ownhost.Table{}))
		assert.NotEqual(t, before, s.Written(t))
	})
	t.Run("a table that cannot be saved leaves the one before", func(t *testing.T) {
		s := open(t)
		require.NoError(t, s.Store.Save(t.Context(), both))
		ended, end := context.WithCancel(t.Context())
		end()
		require.ErrorIs(t, s.Store.Save(ended, ownhost.Table{}), context.Canceled)
		for name, bad := range badTables(etcd, velum) {
			require.Error(t, s.Store.Save(t.Context(), bad), name)
		}
		assert.Equal(t, both, s.Read(t))
	})
}

// badTables are refused by ownhost.Table.Check.
func badTables(etcd, velum ownhost.Entry) map[string]ownhost.Table {
	bad := map[string]ownhost.Table{
		"not sorted": {Entries: []ownhost.Entry{velum, etcd}},
		"twice":      {Entries: []ownhost.Entry{etcd, etcd}},
		"too many":   {Entries: make([]ownhost.Entry, ownhost.MaxEntries+1)},
	}
	for name, change := range map[string]func(*ownhost.Entry){
		"no registry":           func(e *ownhost.Entry) { e.Registry = "" },
		"no repository":         func(e *ownhost.Entry) { e.Repository = "" },
		"no tag":                func(e *ownhost.Entry) { e.Tag = "" },
		"no media type":         func(e *ownhost.Entry) { e.MediaType = "" },
		"another header":        func(e *ownhost.Entry) { e.MediaType = "text/html\r\nWWW-Authenticate: Basic" },
		"a space":               func(e *ownhost.Entry) { e.Tag = "4.0 0" },
		"no ASCII":              func(e *ownhost.Entry) { e.Repository = "vélum" },
		"a long tag":            func(e *ownhost.Entry) { e.Tag = strings.Repeat("1", ownhost.MaxText+1) },
		"no digest":             func(e *ownhost.Entry) { e.Digest = "" },
		"half a digest":         func(e *ownhost.Entry) { e.Digest = "sha256:12" },
		"another algorithm":     func(e *ownhost.Entry) { e.Digest = digest.SHA512.FromString("v") },
		"no size":               func(e *ownhost.Entry) { e.Size = 0 },
		"larger than manifests": func(e *ownhost.Entry) { e.Size = ownhost.MaxManifest + 1 },
	} {
		e := velum
		change(&e)
		bad[name] = ownhost.Table{Entries: []ownhost.Entry{e}}
	}
	return bad
}
