// SPDX-License-Identifier: Apache-2.0

package localregistry_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/agenttest"
	"github.com/kubic-project/image-update-agent/agent/localregistry"
)

func TestStatusOfTheLocalRegistry(t *testing.T) {
	t.Parallel()
	store := &agenttest.LocalRegistry{}
	k := keeper(store, localregistry.Fallback)
	served := april.Add(time.Hour)
	k.Journal = func() (localregistry.Journal, error) {
		return localregistry.Journal{Served: 3, Unknown: 2, Refused: 1, Last: map[string]time.Time{tag.String(): served}}, nil
	}
	f := facts("one")
	f.pins("one")
	require.NoError(t, k.Keep(t.Context(), f.Facts))
	away := func(string) *time.Time { return new(april) }
	want := localregistry.RegistryStatus{
		Registry: "registry.suse.com", Position: "fallback", Unanswered: []localregistry.UnservedTag{},
		Tags:       []localregistry.ServedTag{{Image: velum, Tag: tag.Tag, Digest: sum("one"), LastServed: &served}},
		LastServed: &served, AwaySince: new(april),
	}
	assert.Equal(t, &localregistry.Status{
		Registries: []localregistry.RegistryStatus{want}, Answers: &localregistry.Answers{Served: 3, Unknown: 2, Refused: 1},
	}, k.Status(away))

	full := errors.New("no space left on device")
	store.OnSave = func(localregistry.Table) error { return full }
	k.Journal = func() (localregistry.Journal, error) { return localregistry.Journal{}, full }
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

	assert.Nil(t, keeper(store, localregistry.Off).Status(away), "no hosts.toml names it")
	assert.Nil(t, (*localregistry.Keeper)(nil).Status(away))
}
