// SPDX-License-Identifier: Apache-2.0

package agenttest

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/localregistry"
	"github.com/kubic-project/image-update-agent/agent/localregistry/table"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
)

// LocalRegistry keeps the table of the node's local registry in memory. It implements localregistry.Store.
type LocalRegistry struct {
	// OnSave is called before a table is saved, and its error fails the save; nil: no failure.
	OnSave func(localregistry.Table) error

	// Down is why it does not listen; nil: it listens.
	Down error

	mu     sync.Mutex
	table  localregistry.Table
	torn   bool
	writes int
}

// Save implements localregistry.Store.
func (o *LocalRegistry) Save(ctx context.Context, t localregistry.Table) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := t.Check(); err != nil {
		return err
	}
	if o.OnSave != nil {
		if err := o.OnSave(t); err != nil {
			return err
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	t = localregistry.Table{Entries: slices.Clone(t.Entries)}
	if o.writes == 0 || o.torn || !reflect.DeepEqual(t, o.table) {
		o.table, o.torn = t, false
		o.writes++
	}
	return nil
}

// Table returns the last saved table.
func (o *LocalRegistry) Table() localregistry.Table {
	o.mu.Lock()
	defer o.mu.Unlock()
	return localregistry.Table{Entries: slices.Clone(o.table.Entries)}
}

// Tear makes the table unusable until the next Save, as a power cut may.
func (o *LocalRegistry) Tear() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.table, o.torn = localregistry.Table{}, true
}

// Load returns the table, or an error if it is torn.
func (o *LocalRegistry) Load() (localregistry.Table, error) {
	t := o.Table()
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.torn {
		return t, errors.New("not a table in JSON")
	}
	return t, nil
}

// Writes counts the saved tables.
func (o *LocalRegistry) Writes() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.writes
}

// Hosts are the hosts.toml files of a node in memory. They implement localregistry.Hosts.
type Hosts struct {
	mu        sync.Mutex
	positions record.Entries[localregistry.Position]
	private   record.Entries[bool]
}

// SetPosition puts the local registry into hosts.toml of a registry.
func (h *Hosts) SetPosition(registry string, p localregistry.Position) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.positions.Set(registry, p)
}

// SetPrivate makes a repository require a login.
func (h *Hosts) SetPrivate(repository string, private bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.private.Set(repository, private)
}

// Position implements localregistry.Hosts.
func (h *Hosts) Position(registry string) localregistry.Position {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.positions[registry]
}

// Private implements localregistry.Hosts.
func (h *Hosts) Private(repository string) (private, known bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	private, known = h.private[repository]
	return private, known
}

// localRegistry answers containerd as the node's local registry.
type localRegistry struct {
	store *LocalRegistry
	hosts *Hosts
}

// tag answers for a tag; false if the local registry is not at this position, or does not know the tag.
func (o *localRegistry) tag(ref release.Reference, at localregistry.Position) (digest.Digest, bool) {
	return o.find(ref.Repository, at, func(e localregistry.Entry) bool { return localregistry.ReferenceOf(e) == ref })
}

func (o *localRegistry) find(
	repository string, at localregistry.Position, is func(localregistry.Entry) bool,
) (digest.Digest, bool) {
	if o == nil || o.store.Down != nil || o.hosts.Position(localregistry.RegistryOf(repository)) != at {
		return "", false
	}
	for _, e := range o.store.Table().Entries {
		if is(e) {
			return digest.Digest(e.Digest), true
		}
	}
	return "", false
}

// digest reports whether it answers for a digest, at any position.
func (o *localRegistry) digest(repository string, d digest.Digest) bool {
	for _, at := range []localregistry.Position{localregistry.Gate, localregistry.Fallback} {
		_, ok := o.find(repository, at, func(e localregistry.Entry) bool {
			return e.Digest == d.String() && localregistry.ReferenceOf(e).Repository == repository
		})
		if ok {
			return true
		}
	}
	return false
}

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
