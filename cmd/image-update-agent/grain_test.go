// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"
	"gopkg.in/yaml.v3"

	"github.com/kubic-project/image-update-agent/agent/agenttest"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/config"
	"github.com/kubic-project/image-update-agent/internal/grains"
)

// The grain, through the adapter of this package.
func TestSaltConforms(t *testing.T) {
	t.Parallel()
	agenttest.TestAnnouncer(t, func(t *testing.T) agenttest.AnnouncerUnderTest {
		path := filepath.Join(t.TempDir(), "grains")
		const busy = "update_in_progress: true\n"
		require.NoError(t, os.WriteFile(path, []byte("roles:\n- admin\n"), 0o600))
		read := func(t *testing.T) string {
			t.Helper()
			data, err := os.ReadFile(path)
			require.NoError(t, err)
			return string(data)
		}
		return agenttest.AnnouncerUnderTest{
			Announcer: salt{grains.New("/", path, slog.New(slog.DiscardHandler)), false, func(context.Context) {}},
			Read:      func(t *testing.T) status.Announcement { t.Helper(); return readGrain(t, read(t)) },
			SetBusy: func(t *testing.T, on bool) {
				t.Helper()
				text := strings.ReplaceAll(read(t), busy, "")
				if on {
					text += busy
				}
				require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
			},
		}
	})
}

// readGrain reads the grains as the admin's UI gets them.
func readGrain(t *testing.T, text string) status.Announcement {
	t.Helper()
	var g struct {
		State   string                                             `yaml:"image_update_state"`
		Updates []struct{ Image, Change, From, To, Digest string } `yaml:"image_updates"`
	}
	require.NoError(t, yaml.Unmarshal([]byte(text), &g))
	out := status.Announcement{State: g.State}
	for _, u := range g.Updates {
		out.Updates = append(out.Updates, status.AnnouncedUpdate{
			Image: u.Image, Change: u.Change, From: u.From, To: u.To, Digest: digest.Digest(u.Digest),
		})
	}
	return out
}

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
