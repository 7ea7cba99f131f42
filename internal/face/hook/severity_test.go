// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/catalog"
)

// An offer says its severity and fixes; what the publisher adds to it later is news.
func TestAnOfferSaysWhatItBrings(t *testing.T) {
	t.Parallel()
	of := func(brings *catalog.Brought) Announcement {
		return announce(status.Status{State: status.StateStaged, Images: []status.ImageStatus{{
			Image: "r.io/velum", Staged: true, Change: "rebuild", Offered: &status.Named{Tag: "2", Digest: "sha256:2"}, Brings: brings,
		}}, PodManifests: []status.PodStatus{{}}}, Announcement{})
	}
	known := of(&catalog.Brought{Severity: catalog.SeverityImportant, Fixes: []string{"CVE-2026-1234"}})
	c := known.since(Announcement{})
	require.Len(t, c.Staged, 1)
	assert.Equal(t, "important", c.Staged[0].Severity)
	assert.Equal(t, []string{"CVE-2026-1234"}, c.Staged[0].Fixes)
	assert.Contains(t, c.text(), "(rebuild) important")
	assert.False(t, known.same(of(nil)))
	assert.True(t, known.same(known))
}
