// SPDX-License-Identifier: Apache-2.0

package agenttest

import (
	"context"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/localregistry"
	"github.com/kubic-project/image-update-agent/agent/localregistry/table"
)

// LocalRegistryUnderTest is a localregistry.Store and the view of the process that reads it.
type LocalRegistryUnderTest struct {
	Store localregistry.Store
	// Read returns the table from which the local registry answers.
	Read func(t *testing.T) localregistry.Table
	// Written changes with each write.
	Written func(t *testing.T) string
}

// LocalRegistryEntry returns an entry of a table.
func LocalRegistryEntry(repository, tag, content string) localregistry.Entry {
	return localregistry.Entry{
		Registry: "registry.suse.com", Repository: repository, Tag: tag, Digest: digest.FromString(content).String(),
		MediaType: "application/vnd.oci.image.index.v1+json", Size: int64(len(content)),
	}
}

// TestLocalRegistry asserts the behavior of a localregistry.Store.
func TestLocalRegistry(t *testing.T, open func(t *testing.T) LocalRegistryUnderTest) {
	etcd := LocalRegistryEntry("caasp/v4/etcd", "3.4.13-rev1", "e")
	velum := LocalRegistryEntry("caasp/v4/velum", "4.0.0-rev1", "v")
	both := localregistry.Table{Entries: []localregistry.Entry{etcd, velum}}
	t.Run("the last table is read, whole", func(t *testing.T) {
		s := open(t)
		for _, want := range []localregistry.Table{both, {Entries: []localregistry.Entry{velum}}, both, {}} {
			require.NoError(t, s.Store.Save(t.Context(), want))
			got := s.Read(t)
			assert.ElementsMatch(t, want.Entries, got.Entries)
		}
	})
	t.Run("an equal table is not written", func(t *testing.T) {
		s := open(t)
		require.NoError(t, s.Store.Save(t.Context(), both))
		before := s.Written(t)
		require.NoError(t, s.Store.Save(t.Context(), localregistry.Table{Entries: []localregistry.Entry{etcd, velum}}))
		assert.Equal(t, before, s.Written(t))
		require.NoError(t, s.Store.Save(t.Context(), localregistry.Table{}))
		assert.NotEqual(t, before, s.Written(t))
	})
	t.Run("a table that cannot be saved leaves the one before", func(t *testing.T) {
		s := open(t)
		require.NoError(t, s.Store.Save(t.Context(), both))
		ended, end := context.WithCancel(t.Context())
		end()
		require.ErrorIs(t, s.Store.Save(ended, localregistry.Table{}), context.Canceled)
		for name, bad := range badTables(etcd, velum) {
			require.Error(t, s.Store.Save(t.Context(), bad), name)
		}
		assert.Equal(t, both, s.Read(t))
	})
}

// badTables returns tables that localregistry.Table.Check rejects.
func badTables(etcd, velum localregistry.Entry) map[string]localregistry.Table {
	bad := map[string]localregistry.Table{
		"not sorted": {Entries: []localregistry.Entry{velum, etcd}},
		"twice":      {Entries: []localregistry.Entry{etcd, etcd}},
		"too many":   {Entries: make([]localregistry.Entry, table.MaxEntries+1)},
	}
	for name, change := range map[string]func(*localregistry.Entry){
		"no registry":           func(e *localregistry.Entry) { e.Registry = "" },
		"no repository":         func(e *localregistry.Entry) { e.Repository = "" },
		"no tag":                func(e *localregistry.Entry) { e.Tag = "" },
		"no media type":         func(e *localregistry.Entry) { e.MediaType = "" },
		"another header":        func(e *localregistry.Entry) { e.MediaType = "text/html\r\nWWW-Authenticate: Basic" },
		"a space":               func(e *localregistry.Entry) { e.Tag = "4.0 0" },
		"no ASCII":              func(e *localregistry.Entry) { e.Repository = "vélum" },
		"a long tag":            func(e *localregistry.Entry) { e.Tag = strings.Repeat("1", table.MaxText+1) },
		"no digest":             func(e *localregistry.Entry) { e.Digest = "" },
		"half a digest":         func(e *localregistry.Entry) { e.Digest = "sha256:12" },
		"another algorithm":     func(e *localregistry.Entry) { e.Digest = digest.SHA512.FromString("v").String() },
		"no size":               func(e *localregistry.Entry) { e.Size = 0 },
		"larger than manifests": func(e *localregistry.Entry) { e.Size = table.MaxManifest + 1 },
	} {
		e := velum
		change(&e)
		bad[name] = localregistry.Table{Entries: []localregistry.Entry{e}}
	}
	return bad
}
