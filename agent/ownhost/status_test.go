// SPDX-License-Identifier: Apache-2.0

package ownhost_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/agenttest"
	"github.com/kubic-project/image-update-agent/agent/ownhost"
)

func TestStatusOfTheOwnHost(t *testing.T) {
	t.Parallel()
	store := &agenttest.OwnHost{}
	k := keeper(store, ownhost.Fallback)
	served := april.Add(time.Hour)
	k.Journal = func() (ownhost.Journal, error) {
		return ownhost.Journal{Served: 3, Unknown: 2, Refused: 1, Last: map[string]time.Time{tag.String(): served}}, nil
	}
	f := facts("one")
	f.pins("one")
	require.NoError(t, k.Keep(t.Context(), f.Facts))
	away := func(string) *time.Time { return new(april) }
	want := ownhost.RegistryStatus{
		Registry: "registry.suse.com", Position: "fallback", Unanswered: []ownhost.UnservedTag{},
		Tags:       []ownhost.ServedTag{{Image: velum, Tag: tag.Tag, Digest: sum("one"), LastServed: &served}},
		LastServed: &served, AwaySince: new(april),
	}
	assert.Equal(t, &ownhost.Status{
		Registries: []ownhost.RegistryStatus{want}, Answers: &ownhost.Answers{Served: 3, Unknown: 2, Refused: 1},
	}, k.Status(away))

	full := errors.New("no space left on device")
	store.OnSave = func(ownhost.Table) error { return full }
	k.Journal = func() (ownhost.Journal, error) { return ownhost.Journal{}, full }
	f.Private[velum] = true
	require.Error(t, k.Keep(t.Context(), f.Facts))
	s := k.Status(away)
	assert.Contains(t, s.Error, full.Error())
	assert.Nil(t, s.Answers)
	store.OnSave = nil
	require.NoError(t, k.Keep(t.Context(), f.Facts))
	left := k.Status(away).Registries[0]
	assert.Empty(t, left.Tags)
	require.Len(t, left.Unanswered, 1)
	assert.Contains(t, left.Unanswered[0].Reason, "private")

	assert.Nil(t, keeper(store, ownhost.Off).Status(away), "no hosts.toml names it")
	assert.Nil(t, (*ownhost.Keeper)(nil).Status(away))
}
