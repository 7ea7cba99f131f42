// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kubic-project/image-update-agent/agent/agenttest"
	"github.com/kubic-project/image-update-agent/agent/fleet"
	"github.com/kubic-project/image-update-agent/agent/localregistry"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/source"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// locks makes the node restart all pods under the fleet lock.
func (h *history) locks() {
	h.Fleet = &agenttest.Fleet{}
	h.Policy.Lock = fleet.Lock{Pods: fleet.LockAll, Server: "https://lock", Group: "g", ID: "me"}
}

// lockOps are events of the lock: another node takes it when it is free and releases it, and the server fails before or
// after it grants the lock.
func (h *history) lockOps() []op {
	return []op{
		{"another node locks", func() {
			_, err := h.Fleet.Node("other").Lock(h.t.Context())
			require.True(h.t, err == nil || len(h.Fleet.Holders()) > 0)
		}},
		{"another node unlocks", func() { h.Fleet.Drop("other") }},
		{"the lock server", func() {
			lost, down := rapid.Bool().Draw(h.t, "lost"), rapid.Bool().Draw(h.t, "down")
			h.Fleet.OnLock = func(id string) (bool, error) {
				if down && id == "me" {
					return lost, errors.New("connection refused")
				}
				return false, nil
			}
			h.Fleet.OnUnlock = func(string) error {
				if down {
					return errors.New("connection refused")
				}
				return nil
			}
		}},
	}
}

// unlock restores the lock server with no other node waiting, and asserts that the nodes took turns.
func (h *history) unlock() {
	h.Fleet.OnLock, h.Fleet.OnUnlock = nil, nil
	h.Fleet.Drop("other")
	if h.lostLock && h.record().Lock.State == "" {
		h.Fleet.Drop("me") // by a person: see TestLockOfALostRecordIsReleasedByAPerson
	}
	h.Clock.Add(time.Hour) // the server is asked again by then
	require.LessOrEqual(h.t, h.Fleet.Most(), 1)
}

// anySize exceeds the size of all releases of a history.
const anySize = 1 << 40

// foreign are image names set by other clients, and whether they name old releases of a followed repository.
var foreign = map[string]bool{
	velum + ":latest": false, "docker.io/someone/else:1": false, mariadb + ":3.9.0-rev4": true, velum + ":4.0.0-rev1-build0.1": true,
}

// spaceOps change the disk, the images and their rules.
func (h *history) spaceOps() []op {
	return []op{
		{"pruning", func() { h.namesHold(); h.pruning(); h.agent = h.Agent() }}, // old releases may go
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
	h.Policy.Prune.Unstaged = rapid.Bool().Draw(h.t, "unstaged")
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

// empty asserts that one cycle is enough after space was freed.
func (h *history) empty() {
	h.fills = false
	h.Node.SetDisk(anySize, anySize)
	h.cycle(source.PollNone)
	for _, p := range h.last.PodManifests {
		require.False(h.t, held(h.last, p.PodManifest, status.HoldDisk), "%s: %v", p.PodManifest, p.Holds)
	}
	require.NotContains(h.t, h.last.Reason, "are free on")
}

// namesHold asserts that the agent removed no name of other clients without being asked.
func (h *history) namesHold() {
	require.Empty(h.t, h.Node.PrunedInUse())
	for name, d := range h.named {
		is := func() bool { return strings.Contains(strings.Join(h.Node.Names(d), " ")+" ", name+" ") }
		if h.collected || h.Policy.Prune.Unstaged && foreign[name] {
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

// localRegistryOps change the local registry in hosts.toml, and the disk with its table.
func (h *history) localRegistryOps() []op {
	return []op{
		{"local registry", func() {
			h.Hosts.SetPosition(suse, rapid.SampledFrom([]localregistry.Position{localregistry.Off, localregistry.Fallback, localregistry.Gate}).Draw(h.t, "position"))
		}},
		{"table", func() {
			h.tableFull = rapid.Bool().Draw(h.t, "full")
		}},
		{"login", func() {
			h.Hosts.SetPrivate(rapid.SampledFrom([]string{velum, mariadb}).Draw(h.t, "repository"), rapid.Bool().Draw(h.t, "private"))
		}},
	}
}

// useLocalRegistry gives the node a local registry, and checks each table that is saved.
func (h *history) useLocalRegistry() {
	h.UseLocalRegistry(suse, rapid.SampledFrom([]localregistry.Position{localregistry.Fallback, localregistry.Gate}).Draw(h.t, "position"))
	h.LocalRegistry.OnSave = func(t localregistry.Table) error {
		if h.tableFull {
			return errFull
		}
		h.tableHolds(t)
		return nil
	}
}

// tableHolds asserts that a table names only releases that are pinned, not denied, not private, and known to be
// approved: they run or ran well, or an approval, an override or the boot has named them.
func (h *history) tableHolds(t localregistry.Table) {
	rec := h.record()
	known := map[digest.Digest]bool{}
	for _, g := range rec.Good {
		known[g.Running] = true
	}
	for _, o := range rec.Overrides {
		for _, at := range o.Images {
			known[at.Digest] = true
		}
	}
	containers, _, err := h.Node.Containers(h.t.Context())
	require.NoError(h.t, err)
	for _, c := range containers {
		known[c.Digests[0]] = true
	}
	var last localregistry.Table // each of its entries was checked when it was added
	if h.LocalRegistry.Writes() > 0 {
		last = h.LocalRegistry.Table()
	}
	var started map[digest.Digest]bool
	for _, e := range t.Entries {
		repository := localregistry.ReferenceOf(e).Repository
		_, denied := rec.Denies(release.Release{Repository: repository, Digest: digest.Digest(e.Digest)})
		require.False(h.t, denied, "%v is denied", e)
		require.True(h.t, h.Node.Pinned(repository, digest.Digest(e.Digest)), "%v is not pinned", e)
		private, _ := h.Hosts.Private(repository)
		require.False(h.t, private, "%v is private", e)
		was, _ := last.Tag(e.Registry, e.Repository, e.Tag)
		if h.booting || known[digest.Digest(e.Digest)] || was.Digest == e.Digest {
			continue
		}
		if started == nil {
			started = h.approved()
		}
		require.True(h.t, started[digest.Digest(e.Digest)], "%v is not approved", e)
	}
}

// approved returns the digests that may be offered to the approved pods.
func (h *history) approved() map[digest.Digest]bool {
	approved := h.record().Approved
	out := map[digest.Digest]bool{}
	for file, repositories := range map[string][]string{
		"velum.yaml": {velum, mariadb}, "db.yaml": {mariadb, velum}, "etcd.yaml": {etcd},
	} {
		if _, is := approved[file]; !is && !h.Policy.Auto {
			continue
		}
		for _, r := range h.published {
			if slices.Contains(repositories, r.Repository) {
				out[r.Digest] = true
			}
		}
	}
	return out
}
