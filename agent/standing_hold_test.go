// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"bytes"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// A hold on a node that is current holds the next release, so it is shown before that comes.
func TestStandingHoldIsShownWhileNothingIsOffered(t *testing.T) {
	t.Parallel()
	w, _ := running(t)
	assert.Empty(t, w.observe().StandingHolds)
	log := &bytes.Buffer{}
	w.agent.Log = slog.New(slog.NewTextHandler(log, nil))
	until := w.Clock.Now().Add(time.Hour).UTC()
	since := w.Clock.Now().UTC()
	_, s, err := w.agent.Hold(status.WithActor(t.Context(), alice()), nil, true, record.PersonHold{Reason: "demo", Until: until})
	require.NoError(t, err)
	assert.Equal(t, status.StateCurrent, s.State)
	want := status.StandingHold{Repository: "*", Name: "hold", Reason: "demo", Since: &since, Until: &until, By: alice()}
	want.Remedy = "image-update-agent unhold --all; or wait for its end"
	assert.Equal(t, []status.StandingHold{want}, s.StandingHolds)
	assert.Contains(t, log.String(), `msg=held images=[*] until=2026-05-01T13:00:00.000Z by="alice (uid 1000, bus)"`)
	w.restart()
	assert.Equal(t, []status.StandingHold{want}, w.observe().StandingHolds, "also after a restart")
	w.Clock.Add(time.Hour)
	assert.Empty(t, w.observe().StandingHolds, "it has ended")
	w.hold(record.PersonHold{}, "velum")
	assert.Equal(t, velum, w.observe().StandingHolds[0].Repository)
	assert.Nil(t, w.observe().StandingHolds[0].Until)
	_, s, err = w.agent.Unhold(t.Context(), nil, true)
	require.NoError(t, err)
	assert.Empty(t, s.StandingHolds)
}
