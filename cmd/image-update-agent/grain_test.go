// SPDX-License-Identifier: Apache-2.0

package main

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/node/config"
)

// What Velum was asked for is taken back by the next cycle, whatever of the two
// settings was turned off.
func TestVelumIsAskedAndNoMore(t *testing.T) {
	t.Parallel()
	waiting := status.Announcement{State: "staged", Updates: []status.AnnouncedUpdate{{
		Image: "registry.suse.com/caasp/v4/velum", Change: "rebuild", To: "4.0.0-rev1", Digest: digest.FromString("v"),
	}}}
	path := filepath.Join(t.TempDir(), "grains")
	announce := func(g config.Grains) string {
		g.Path = path
		s := settings{Settings: config.Settings{Grains: g}}
		require.NoError(t, announcer(s, slog.New(slog.DiscardHandler)).Announce(t.Context(), waiting))
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		return string(data)
	}
	for name, off := range map[string]config.Grains{"velum: off": {Enabled: true}, "enabled: false": {}} {
		require.NoError(t, os.WriteFile(path, []byte("roles: [admin]\n"), 0o600))
		require.NotContains(t, announce(config.Grains{Enabled: true}), "reboot", "it was not requested")
		require.Contains(t, announce(config.Grains{Enabled: true, Velum: true}), "\ntx_update_reboot_needed: true ")
		require.NotContains(t, announce(off), "reboot", name)
	}
	require.NoError(t, os.WriteFile(path, []byte("tx_update_reboot_needed: true\n"), 0o600))
	require.Equal(t, "tx_update_reboot_needed: true\n", announce(config.Grains{}), "transactional-update's")
	require.NoError(t, os.WriteFile(path, []byte("a: [\n"), 0o600))
	require.Equal(t, "a: [\n", announce(config.Grains{}), "turned off, so its trouble is not ours")
}
