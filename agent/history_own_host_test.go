// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"slices"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kubic-project/image-update-agent/agent/ownhost"
	"github.com/kubic-project/image-update-agent/agent/release"
)

// ownHostOps change what hosts.toml says of the own host, and the disk that its table is on.
func (h *history) ownHostOps() []op {
	return []op{
		{"own host", func() {
			h.Hosts.SetPosition(suse, rapid.SampledFrom([]ownhost.Position{ownhost.Off, ownhost.Fallback, ownhost.Gate}).Draw(h.t, "position"))
		}},
		{"table", func() {
			h.tableFull = rapid.Bool().Draw(h.t, "full")
		}},
		{"login", func() {
			h.Hosts.SetPrivate(rapid.SampledFrom([]string{velum, mariadb}).Draw(h.t, "repository"), rapid.Bool().Draw(h.t, "private"))
		}},
	}
}

// useOwnHost gives the node an own host whose table is checked whenever it is saved.
func (h *history) useOwnHost() {
	h.UseOwnHost(suse, rapid.SampledFrom([]ownhost.Position{ownhost.Fallback, ownhost.Gate}).Draw(h.t, "position"))
	h.OwnHost.OnSave = func(t ownhost.Table) error {
		if h.tableFull {
			return errFull
		}
		h.tableHolds(t)
		return nil
	}
}

// tableHolds asserts that a table names only what is pinned, not denied, not private, and known to
// be approved: it runs, it ran well, or an approval, an override or the boot has named it.
func (h *history) tableHolds(t ownhost.Table) {
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
	var last ownhost.Table // each of its entries was checked when it came
	if h.OwnHost.Writes() > 0 {
		last = h.OwnHost.Table()
	}
	var started map[digest.Digest]bool
	for _, e := range t.Entries {
		repository := e.Reference().Repository
		_, denied := rec.Denies(release.Release{Repository: repository, Digest: e.Digest})
		require.False(h.t, denied, "%v is denied", e)
		require.True(h.t, h.Node.Pinned(repository, e.Digest), "%v is not pinned", e)
		private, _ := h.Hosts.Private(repository)
		require.False(h.t, private, "%v is private", e)
		was, _ := last.Tag(e.Registry, e.Repository, e.Tag)
		if h.booting || known[e.Digest] || was.Digest == e.Digest {
			continue
		}
		if started == nil {
			started = h.approved()
		}
		require.True(h.t, started[e.Digest], "nobody has approved %v", e)
	}
}

// approved returns the digests that the approved pods may be offered.
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
