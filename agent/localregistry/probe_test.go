// SPDX-License-Identifier: Apache-2.0

package localregistry_test

import (
	"context"
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
