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
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/status"
)

func TestStatusOfTheOwnHost(t *testing.T) {
	t.Parallel()
	store := &agenttest.OwnHost{}
	k := keeper(store, ownhost.Fallback)
	served := april.Add(time.Hour)
	k.Journal = func() (ownhost.Journal, error) {
		return ownhost.Journal{Served: 3, Unknown: 2, Refused: 1, Last: map[string]time.Time{tag.String(): served}}, nil
	}
	f := facts(map[string]string{"a.yaml": "one"})
	pins(&f, "one")
	require.NoError(t, k.Keep(t.Context(), f))
	away := record.Entries[record.SourceRecord]{velum: {Failures: 2, LastSuccess: april}}
	want := status.OwnHostRegistry{
		Registry: "registry.suse.com", Position: "fallback", Unanswered: []status.OwnHostUnanswered{},
		Tags:       []status.OwnHostTag{{Image: velum, Tag: tag.Tag, Digest: sum("one"), LastServed: &served}},
		LastServed: &served, AwaySince: new(april),
	}
	assert.Equal(t, &status.OwnHostStatus{
		Registries: []status.OwnHostRegistry{want}, Answers: &status.OwnHostAnswers{Served: 3, Unknown: 2, Refused: 1},
	}, k.Status(away))

	// Another repository of it answers, so the registry is there.
	away["registry.suse.com/other"] = record.SourceRecord{LastSuccess: april}
	assert.Nil(t, k.Status(away).Registries[0].AwaySince)

	full := errors.New("no space left on device")
	store.OnSave = func(ownhost.Table) error { return full }
	k.Journal = func() (ownhost.Journal, error) { return ownhost.Journal{}, full }
	f.Record.Private.Set(velum, true)
	require.Error(t, k.Keep(t.Context(), f))
	s := k.Status(nil)
	assert.Contains(t, s.Error, full.Error())
	assert.Nil(t, s.Answers)
	store.OnSave = nil
	require.NoError(t, k.Keep(t.Context(), f))
	left := k.Status(nil).Registries[0]
	assert.Empty(t, left.Tags)
	require.Len(t, left.Unanswered, 1)
	assert.Contains(t, left.Unanswered[0].Reason, "private")

	assert.Nil(t, keeper(store, ownhost.Off).Status(nil), "no hosts.toml names it")
	assert.Nil(t, (*ownhost.Keeper)(nil).Status(nil))
}
