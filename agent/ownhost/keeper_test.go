// SPDX-License-Identifier: Apache-2.0

package ownhost_test

import (
	"context"
	"errors"
	"testing"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/agenttest"
	"github.com/kubic-project/image-update-agent/agent/ownhost"
	"github.com/kubic-project/image-update-agent/agent/release"
)

func keeper(store *agenttest.OwnHost, at ownhost.Position) *ownhost.Keeper {
	hosts := &agenttest.Hosts{}
	hosts.SetPosition("registry.suse.com", at)
	return &ownhost.Keeper{
		Store: store, Hosts: hosts, Load: func() (ownhost.Table, error) { return store.Table(), nil },
	}
}

func TestKeeperAnswersByTheSavedTable(t *testing.T) {
	t.Parallel()
	store := &agenttest.OwnHost{}
	k := keeper(store, ownhost.Gate)
	f := facts("one")
	f.pins("one", "two")
	require.NoError(t, k.Keep(t.Context(), f.Facts))
	assert.Equal(t, ownhost.Gate, k.Answers(tag, sum("one")))
	assert.Equal(t, ownhost.Off, k.Answers(tag, sum("two")))
	assert.Equal(t, ownhost.Off, k.Answers(release.Reference{Repository: velum, Tag: "5"}, sum("one")))
	assert.Equal(t, ownhost.Gate, k.AnswersDigest(release.Pin{Repository: velum, Digest: sum("one")}))
	assert.Equal(t, ownhost.Off, k.AnswersDigest(release.Pin{Repository: velum + "/other", Digest: sum("one")}))
	assert.Equal(t, map[release.Reference]digest.Digest{tag: sum("one")}, k.Gated())

	// What could not be saved is not answered.
	full := errors.New("no space left on device")
	store.OnSave = func(ownhost.Table) error { return full }
	f.UnderWay = []ownhost.Named{named("two")}
	require.ErrorIs(t, k.Keep(t.Context(), f.Facts), full)
	require.ErrorIs(t, k.Err(), full)
	assert.Equal(t, ownhost.Gate, k.Answers(tag, sum("one")))
	assert.Equal(t, ownhost.Off, k.Answers(tag, sum("two")))
	store.OnSave = nil
	require.NoError(t, k.Keep(t.Context(), f.Facts))
	require.NoError(t, k.Err())
	assert.Equal(t, ownhost.Gate, k.Answers(tag, sum("two")))
}

func TestKeeperSavesChangesOnly(t *testing.T) {
	t.Parallel()
	store := &agenttest.OwnHost{}
	saves := 0
	store.OnSave = func(ownhost.Table) error { saves++; return nil }
	f := facts("one")
	f.pins("one")
	k := keeper(store, ownhost.Fallback)
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

// After a restart the table of before counts, and it answers at once.
func TestKeeperLoadsTheTableOfBefore(t *testing.T) {
	t.Parallel()
	store := &agenttest.OwnHost{}
	f := facts("")
	f.pins("one")
	f.UnderWay = []ownhost.Named{named("one")}
	require.NoError(t, keeper(store, ownhost.Fallback).Keep(t.Context(), f.Facts))

	f.UnderWay = nil
	next := keeper(store, ownhost.Fallback)
	assert.True(t, next.IsAsked())
	require.NoError(t, next.Keep(t.Context(), f.Facts))
	assert.Equal(t, ownhost.Fallback, next.Answers(tag, sum("one")))
	assert.False(t, keeper(store, ownhost.Off).IsAsked())
}

func TestNoKeeperHasNoOwnHost(t *testing.T) {
	t.Parallel()
	var k *ownhost.Keeper
	require.NoError(t, k.Keep(t.Context(), ownhost.Facts{}))
	require.NoError(t, k.Err())
	assert.Equal(t, ownhost.Off, k.Position(velum))
	assert.Equal(t, ownhost.Off, k.Answers(tag, sum("one")))
	assert.Equal(t, ownhost.Off, k.AnswersDigest(release.Pin{Repository: velum, Digest: sum("one")}))
	assert.Empty(t, k.Gated())
	assert.False(t, k.IsAsked())
}
