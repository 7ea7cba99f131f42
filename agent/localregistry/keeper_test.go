// SPDX-License-Identifier: Apache-2.0

package localregistry_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/agenttest"
	"github.com/kubic-project/image-update-agent/agent/localregistry"
	"github.com/kubic-project/image-update-agent/agent/release"
)

func keeper(store *agenttest.LocalRegistry, at localregistry.Position) *localregistry.Keeper {
	hosts := &agenttest.Hosts{}
	hosts.SetPosition("registry.suse.com", at)
	return &localregistry.Keeper{
		Store: store, Hosts: hosts, Load: func() (localregistry.Table, error) { return store.Table(), nil },
	}
}

func TestKeeperAnswersByTheSavedTable(t *testing.T) {
	t.Parallel()
	store := &agenttest.LocalRegistry{}
	k := keeper(store, localregistry.Gate)
	f := facts("one")
	f.pins("one", "two")
	require.NoError(t, k.Keep(t.Context(), f.Facts))
	assert.Equal(t, localregistry.Gate, k.Answers(tag, sum("one")))
	assert.Equal(t, localregistry.Off, k.Answers(tag, sum("two")))
	assert.Equal(t, localregistry.Off, k.Answers(release.Reference{Repository: velum, Tag: "5"}, sum("one")))
	assert.Equal(t, localregistry.Gate, k.AnswersDigest(release.Pin{Repository: velum, Digest: sum("one")}))
	assert.Equal(t, localregistry.Off, k.AnswersDigest(release.Pin{Repository: velum + "/other", Digest: sum("one")}))
	assert.Equal(t, map[release.Reference]digest.Digest{tag: sum("one")}, k.Gated())

	// A table that could not be saved is not used.
	full := errors.New("no space left on device")
	store.OnSave = func(localregistry.Table) error { return full }
	f.UnderWay = []localregistry.Named{named("two")}
	require.ErrorIs(t, k.Keep(t.Context(), f.Facts), full)
	assert.Equal(t, localregistry.Gate, k.Answers(tag, sum("one")))
	assert.Equal(t, localregistry.Off, k.Answers(tag, sum("two")))
	store.OnSave = nil
	require.NoError(t, k.Keep(t.Context(), f.Facts))
	assert.Equal(t, localregistry.Gate, k.Answers(tag, sum("two")))
}

func TestKeeperSavesChangesOnly(t *testing.T) {
	t.Parallel()
	store := &agenttest.LocalRegistry{}
	saves := 0
	store.OnSave = func(localregistry.Table) error { saves++; return nil }
	f := facts("one")
	f.pins("one")
	k := keeper(store, localregistry.Fallback)
	for range 3 {
		require.NoError(t, k.Keep(t.Context(), f.Facts))
	}
	assert.Equal(t, 1, saves)
	ended, end := context.WithCancel(t.Context())
	end()
	f.Followed = nil
	require.NoError(t, k.Keep(ended, f.Facts), "a cancelled cycle saves its table")
	assert.Empty(t, store.Table().Entries)
}

// After a restart the previous table is loaded, and the registry answers at once.
func TestKeeperLoadsThePreviousTable(t *testing.T) {
	t.Parallel()
	store := &agenttest.LocalRegistry{}
	f := facts("")
	f.pins("one")
	f.UnderWay = []localregistry.Named{named("one")}
	require.NoError(t, keeper(store, localregistry.Fallback).Keep(t.Context(), f.Facts))

	f.UnderWay = nil
	next := keeper(store, localregistry.Fallback)
	assert.True(t, next.IsAsked(nil))
	require.NoError(t, next.Keep(t.Context(), f.Facts))
	assert.Equal(t, localregistry.Fallback, next.Answers(tag, sum("one")))
	assert.False(t, keeper(store, localregistry.Off).IsAsked(nil))
}

func TestNilKeeper(t *testing.T) {
	t.Parallel()
	var k *localregistry.Keeper
	require.NoError(t, k.Keep(t.Context(), localregistry.Facts{}))
	assert.Equal(t, localregistry.Off, k.Position(velum))
	assert.Equal(t, localregistry.Off, k.Answers(tag, sum("one")))
	assert.Equal(t, localregistry.Off, k.AnswersDigest(release.Pin{Repository: velum, Digest: sum("one")}))
	assert.Empty(t, k.Gated())
	assert.False(t, k.IsAsked(nil))
}

// keptBefore returns the keeper of a process that starts with the table of an earlier one.
func keptBefore(t *testing.T, at localregistry.Position) *localregistry.Keeper {
	t.Helper()
	store := &agenttest.LocalRegistry{}
	f := facts("one")
	f.pins("one")
	require.NoError(t, keeper(store, at).Keep(t.Context(), f.Facts))
	return keeper(store, at)
}

// The first plan after a start knows the gate's answers before a table is saved.
func TestGatedLoadsThePreviousTable(t *testing.T) {
	t.Parallel()
	assert.Equal(t, map[release.Reference]digest.Digest{tag: sum("one")}, keptBefore(t, localregistry.Gate).Gated())
	assert.Empty(t, keptBefore(t, localregistry.Fallback).Gated())
}

// A host that hangs delays one observation in 10 seconds, by 2 seconds; a restart always probes.
func TestProbesAreLimited(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := keptBefore(t, localregistry.Gate)
		asked := 0
		k.Ask = func(ctx context.Context, _ localregistry.Entry) error {
			asked++
			<-ctx.Done()
			return ctx.Err()
		}
		began, took := time.Now(), time.Duration(0)
		for time.Since(began) < 2*time.Minute {
			before := time.Now()
			k.Probe(t.Context())
			took = max(took, time.Since(before))
			<-time.After(time.Second)
		}
		assert.Equal(t, 10, asked, "each 2 s, and 10 s later")
		assert.Equal(t, 2*time.Second, took)
		assert.Equal(t, localregistry.Off, k.Answers(tag, sum("one")))
		k.ProbeNow(t.Context())
		k.ProbeNow(t.Context())
		assert.Equal(t, 12, asked)
	})
}
