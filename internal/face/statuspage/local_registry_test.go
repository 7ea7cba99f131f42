// SPDX-License-Identifier: Apache-2.0

package statuspage

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/localregistry"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/face/terminal"
)

func TestLocalRegistry(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	served, away := noon.Add(3*time.Minute), noon.Add(-2*time.Minute)
	s := status.Status{State: status.StateStale, Since: noon, LocalRegistry: &localregistry.Status{
		Registries: []localregistry.RegistryStatus{
			{
				Registry: "registry.suse.com", Position: "fallback", Tags: make([]localregistry.ServedTag, 6), LastServed: &served,
				AwaySince: &away, Unanswered: []localregistry.UnservedTag{{
					Image: "registry.suse.com/private/db", Tag: "10.0-rev1", Reason: "private: the registry requires a login (localRegistry.private)",
				}},
			},
			{Registry: "registry.example.com", Position: "gate", Tags: make([]localregistry.ServedTag, 1)},
		},
		Error: "table of the local registry: no space left on device",
	}}
	var out bytes.Buffer
	require.NoError(t, Status(terminal.NewPage(&out, noon.Add(5*time.Minute)), s, false))
	text := out.String()
	for _, line := range []string{
		"Local:       fallback: ready for 6 tags on registry.suse.com",
		"last used at 2026-11-21 12:03",
		"registry does not answer, last answer at 2026-11-21 11:58",
		"1 tag not served",
		"gate: containers start the approved digests of 1 tag on registry.example.com",
		"not up to date: table of the local registry: no space left on device",
		"Not served by the local registry:\n  db:10.0-rev1: private: the registry requires a login",
	} {
		assert.Contains(t, text, line)
	}
	s.LocalRegistry.Down = "local registry at 127.0.0.1:334: connection refused"
	out.Reset()
	require.NoError(t, Status(terminal.NewPage(&out, noon.Add(5*time.Minute)), s, false))
	assert.Contains(t, out.String(), "does not answer, so containers need the registry to start: local registry at 127.0.0.1:334: connection refused")
	assert.NotContains(t, out.String(), ": ready for", "it is not")
	assert.NotContains(t, out.String(), "take what was approved")
	s.LocalRegistry = nil
	out.Reset()
	require.NoError(t, Status(terminal.NewPage(&out, noon), s, false))
	assert.NotContains(t, out.String(), "wn host")
}
