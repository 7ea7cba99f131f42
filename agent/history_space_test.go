// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"strings"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/source"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// anySize is more than all releases of a history need.
const anySize = 1 << 40

// foreign are image names that other clients give, and whether they are of old releases of a
// followed repository.
var foreign = map[string]bool{
	velum + ":latest": false, "docker.io/someone/else:1": false, mariadb + ":3.9.0-rev4": true, velum + ":4.0.0-rev1-build0.1": true,
}

// spaceOps change the disk, the images and their rules.
func (h *history) spaceOps() []op {
	return []op{
		{"pruning", func() { h.namesHold(); h.pruning(); h.agent = h.Agent() }}, // what was let go, is
		{"disk", h.disk},
		{"empty disk", h.empty},
		{"pulls fill the disk", func() { h.fills = true; h.disk() }},
		{"foreign image", func() {
			name := rapid.SampledFrom([]string{
				velum + ":latest", "docker.io/someone/else:1", mariadb + ":3.9.0-rev4", velum + ":4.0.0-rev1-build0.1",
			}).Draw(h.t, "name")
			h.named[name] = h.someDigest()
			h.Node.Hold(name, h.named[name])
		}},
		{"shadow", func() {
			d := h.someDigest()
			h.Node.Hold(velum+"@"+d.String(), d)
		}},
		{"other container", func() {
			r := rapid.SampledFrom(h.published).Draw(h.t, "release")
			h.Node.Others = []digest.Digest{r.Config}
		}},
	}
}

func (h *history) disk() {
	h.Node.SetDisk(anySize, rapid.Int64Range(0, 300).Draw(h.t, "free"))
}

func (h *history) pruning() {
	h.Policy.Prune.Keep = rapid.IntRange(0, 2).Draw(h.t, "keep")
	h.Policy.Prune.Foreign = rapid.Bool().Draw(h.t, "foreign")
	h.Policy.MaxParallelStages = rapid.IntRange(1, 3).Draw(h.t, "together")
	h.Policy.Reserve.Bytes = rapid.Int64Range(0, 100).Draw(h.t, "reserve")
}

func (h *history) someDigest() digest.Digest {
	return rapid.SampledFrom(h.published).Draw(h.t, "release").Digest
}

func (h *history) filled(release.Release) error {
	if h.fills {
		return release.ErrNoSpace
	}
	return nil
}

// empty asserts that one cycle suffices once there is space.
func (h *history) empty() {
	h.fills = false
	h.Node.SetDisk(anySize, anySize)
	h.cycle(source.PollNone)
	for _, p := range h.last.PodManifests {
		require.False(h.t, held(h.last, p.PodManifest, status.HoldDisk), "%s: %v", p.PodManifest, p.Holds)
	}
	require.NotContains(h.t, h.last.Reason, "are free on")
}

// namesHold asserts that no name of others was taken away unasked.
func (h *history) namesHold() {
	require.Empty(h.t, h.Node.PrunedInUse())
	for name, d := range h.named {
		is := func() bool { return strings.Contains(strings.Join(h.Node.Names(d), " ")+" ", name+" ") }
		if h.collected || h.Policy.Prune.Foreign && foreign[name] {
			if !is() {
				delete(h.named, name)
			}
			continue
		}
		require.True(h.t, is(), "%s is gone", name)
	}
	h.collected = false
}

// reboot restarts the node. While the registry is away, images with pull policy Always do not
// start.
func (h *history) reboot() {
	before := h.seen()
	h.Node.PowerOff()
	h.booting = true
	defer func() { h.booting = false }()
	steps, err := h.Agent().Boot(h.t.Context())
	require.NoError(h.t, err)
	require.NoError(h.t, plan.BootErrors(steps))
	did := map[string]bool{}
	for _, s := range steps {
		did[s.File] = s.Do != ""
	}
	for p, b := range before {
		require.Equal(h.t, did[p[0]], b.file != h.Node.PodManifest(p[0]), "%s: %v", p[0], steps)
	}
	again, err := h.Agent().Boot(h.t.Context())
	require.NoError(h.t, err)
	for _, s := range again {
		require.Empty(h.t, s.Do, "a second boot would %s %s: %s\nfirst: %v\n%s\n---\n%s", s.Do, s.File, s.Reason, steps, s.Was.Data, s.Data)
	}
	h.agent = h.Agent()
	if rapid.Bool().Draw(h.t, "before kubelet") {
		h.cycle(source.PollNone)
	}
	h.Node.SetKubelet(true)
	h.Node.Sync()
}

func (h *history) loseRecord() {
	h.lostLock = h.lostLock || h.record().Lock.State != ""
	h.Disk.Lose()
	h.agent, h.last, h.lost = h.Agent(), status.Status{}, true
}
