// SPDX-License-Identifier: Apache-2.0

package grains_test

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
	"github.com/kubic-project/image-update-agent/internal/face/grains"
)

func TestAnnouncerConforms(t *testing.T) {
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
			Announcer: grains.Announcer{
				Store: grains.New("", path, slog.New(slog.DiscardHandler)), Changed: func(context.Context) {},
			},
			Read: func(t *testing.T) status.Announcement { t.Helper(); return readGrain(t, read(t)) },
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

// readGrain reads the grains as the admin's UI does.
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
