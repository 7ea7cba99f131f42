// SPDX-License-Identifier: Apache-2.0

//go:build soak

package catalog

import (
	"encoding/json"
	"fmt"
	mathrand "math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
	"github.com/kubic-project/image-update-agent/internal/catalog"
	"github.com/kubic-project/image-update-agent/internal/catalog/ops"
	"github.com/kubic-project/image-update-agent/internal/catalog/publish"
)

// crossed is a catalog whose channel prod two processes change at once.
type crossed struct {
	*publishers

	repository string // nodes know it as the first one, which each round begins with a copy of
	signer     *publish.Key
	digests    map[string]digest.Digest // by IMAGE:TAG
	first      uint64                   // the version of prod that they find
}

// ran is what a process has come to.
type ran struct {
	by, errs string
	args     []string
	code     int
	got      publish.Result
}

func crossedBuild(n int) string { return fmt.Sprintf("4.0.0-rev1-build1.%d", n) }

// verbs are those that change prod, each with its flags: the pairs of internal/catalog/publish, as a person types them.
func (x *crossed) verbs() [][]string {
	ref := func(image string, n int) string { return x.registry.Ref(image + ":" + crossedBuild(n)) }
	velum := "velum:" + crossedBuild(2)
	return [][]string{
		{"add", "prod", ref("velum", 7), "--severity", "important", "--fixes", "CVE-2026-1234"},
		{"add", "prod", ref("velum", 8), ref("etcd", 8), "--set", "t"},
		{"add", "prod", ref("velum", 2), "--set", "t"},
		{"promote", "stage", "prod", "--all"},
		{"promote", "stage", "prod", "--all", "--rollout", "72h"},
		{"promote", "stage", "prod", "--set", "s"},
		{"promote", "stage", "prod", "salt:" + crossedBuild(2)},
		{"promote", "stage", "prod", velum, "--now"},
		{"promote", "stage", "prod", "salt:" + crossedBuild(1), "--withdrawn"},
		{"promote", "stage", "prod", "--all", "--soaked", "1h"},
		{"promote", "prod", "--revert"},
		{"promote", "prod@2", "--revert"},
		{"withdraw", "prod", velum, "--reason", "bsc#1"},
		{"withdraw", "prod", velum, "--reason", "bsc#2", "--instead", crossedBuild(1)},
		{"withdraw", "prod", "--set", "old", "--reason", "bsc#3"},
		{"rollout", "prod", "--pause"},
		{"rollout", "prod", "etcd", "--resume"},
		{"rollout", "prod", "velum", "--over", "96h"},
		{"rollout", "prod", "--now"},
		{"refresh", "prod", "--expires", "90d"},
		{"refresh", "prod"},
		{"freeze", "prod", "--until", "10d"},
		{"unfreeze", "prod"},
		{"note", "prod", velum, "--note", "known a day later"},
		{"prune", "prod", "--keep", "1"},
	}
}

func (x *crossed) publisher(t *testing.T, now time.Time) *publish.Publisher {
	t.Helper()
	p, err := publish.New(publish.Options{
		Repository: x.repository, Name: x.registry.Ref(crossedCatalog), Keys: []*publish.Key{x.signer}, By: "root", Now: func() time.Time { return now },
	})
	require.NoError(t, err)
	return p
}

func (x *crossed) release(image string, n int, set string) catalog.Change {
	c := catalog.Change{Image: x.registry.Ref(image), Release: catalog.Release{Tag: crossedBuild(n), Set: set}}
	c.Release.Digest = x.digests[image+":"+c.Release.Tag]
	return c
}

const crossedCatalog = "catalog"

// newCrossed makes a catalog: prod has a rollout that is under way and one that is paused, a set, and a withdrawn release;
// stage has more.
func newCrossed(t *testing.T, p *publishers) *crossed {
	t.Helper()
	x := &crossed{publishers: p, repository: p.registry.Ref(crossedCatalog), digests: map[string]digest.Digest{}}
	for _, image := range []string{"velum", "etcd", "salt"} {
		for n := 1; n <= 8; n++ {
			tag := crossedBuild(n)
			x.digests[image+":"+tag] = digest.Digest(p.registry.Push(image, node.Image{Answer: tag}, tag))
		}
	}
	key, err := os.ReadFile(p.key)
	require.NoError(t, err)
	x.signer, err = publish.ParseKey(key, nil)
	require.NoError(t, err)
	now := time.Now().UTC().Truncate(time.Second)
	root := x.publisher(t, now.Add(-72*time.Hour))
	do := func(channel string, verb publish.Verb, how publish.How) {
		t.Helper()
		_, err := root.Change(t.Context(), channel, verb, how)
		require.NoError(t, err)
	}
	ask := func(channel string, what catalog.Action, all ...catalog.Change) {
		t.Helper()
		do(channel, publish.Ask(ops.Want{Do: what, Changes: all}), publish.How{})
	}
	for _, channel := range []string{"stage", "prod"} {
		do(channel, publish.Refresh(time.Time{}), publish.How{New: true})
	}
	old := []catalog.Change{x.release("velum", 1, "old"), x.release("etcd", 1, "old"), x.release("salt", 1, "")}
	ask("prod", catalog.ActionAdd, old...)
	ask("stage", catalog.ActionAdd, append(old, x.release("velum", 2, ""), x.release("etcd", 2, ""))...)
	under, paused := x.release("velum", 2, ""), x.release("etcd", 2, "")
	under.Release.Rollout = &catalog.Rollout{From: now.Add(-time.Hour), Hours: 48}
	stopped := catalog.Rollout{From: now.Add(-2 * time.Hour), Hours: 48}.Pause(now.Add(-time.Hour))
	paused.Release.Rollout = &stopped
	ask("prod", catalog.ActionPromote, under, paused)
	do("prod", publish.Withdraw(publish.Withdrawal{Images: []string{"salt:" + crossedBuild(1)}, Reason: "bsc#0"}), publish.How{})
	ask("stage", catalog.ActionAdd, x.release("velum", 3, "s"), x.release("etcd", 3, "s"), x.release("salt", 2, ""))
	v, err := root.Read(t.Context(), "prod")
	require.NoError(t, err)
	x.first = v.Version
	return x
}

// again returns a copy of the catalog in a repository of its own.
func (x *crossed) again(t *testing.T, round int) *crossed {
	t.Helper()
	out, own, name := *x, *x.publishers, fmt.Sprintf("round-%d", round)
	out.publishers, out.repository = &own, x.registry.Ref(name)
	own.env = append(slices.Clone(x.env), "IMAGE_CATALOG="+out.repository)
	all := filepath.Join(x.registry.Storage(), "docker/registry/v2/repositories")
	require.NoError(t, os.CopyFS(filepath.Join(all, name), os.DirFS(filepath.Join(all, crossedCatalog))))
	return &out
}

// refusals are what a verb may say beside another one: what it wants cannot be any more.
var refusals = regexp.MustCompile(`withdrawn (from|meanwhile)|frozen (until|meanwhile)|no rollout under way|it is in set|` +
	`another publisher|does not list it|no earlier version|was pruned|withdrawn itself|no such set|is withdrawn from`)

// both runs two verbs at once, the second one a moment later.
func (x *crossed) both(t *testing.T, a, b []string, later time.Duration) []ran {
	t.Helper()
	out := []ran{{by: "A", args: a}, {by: "B", args: b}}
	var wg sync.WaitGroup
	for n := range out {
		wg.Go(func() {
			<-time.After(time.Duration(n) * later)
			is := &out[n]
			args := append(slices.Clone(is.args), "--key", x.key, "--by", is.by, "--output", "json",
				"--name", x.registry.Ref(crossedCatalog))
			var text string
			text, is.errs, is.code = x.run(t, args...)
			if is.code == 0 && is.args[0] != "prune" {
				assert.NoError(t, json.Unmarshal([]byte(text), &is.got), text)
			}
		})
	}
	wg.Wait()
	return out
}

// check checks what must hold of prod after two verbs, and returns what they were refused for.
func (x *crossed) check(t *testing.T, title string, acts []ran) (refused int) {
	t.Helper()
	reader := x.publisher(t, time.Now())
	v, err := reader.Read(t.Context(), "prod")
	require.NoError(t, err, title)
	log, err := reader.Log(t.Context(), v)
	require.NoError(t, err, title)
	pages, err := reader.Pages(t.Context(), v)
	require.NoError(t, err, title)
	is := ops.State{Pages: pages, Times: v.Times}
	assert.GreaterOrEqual(t, v.Version, x.first, title)
	for _, a := range acts {
		assert.Contains(t, []int{0, 1, 3}, a.code, "%s: %s", title, a.errs)
		if a.code == 1 {
			refused++
			assert.Regexp(t, refusals, a.errs, title)
		}
		for _, e := range log {
			if e.By == a.by && a.code == 0 {
				x.checkAsked(t, title, is, log, e, acts)
			}
		}
		isLogged := slices.ContainsFunc(log, func(e catalog.Entry) bool { return e.By == a.by })
		changed := slices.ContainsFunc(a.got.Outcomes, func(o publish.Outcome) bool { return o.Changed })
		assert.True(t, isLogged || !changed, "%s: the log does not have what %s has asked for", title, a.by)
	}
	for _, e := range log {
		for _, l := range ops.Lost(is, e.Op) {
			again := slices.ContainsFunc(log, func(o catalog.Entry) bool { return o.Again && o.Tag == l.By })
			assert.True(t, e.Do != catalog.ActionWithdraw || again, "%s: %s was withdrawn, and is offered", title, l.Change.Member())
		}
	}
	for _, page := range pages {
		for _, r := range page.Releases {
			for _, member := range r.Members {
				image, tag := catalog.SplitMember(member)
				assert.NotNil(t, ops.Find(pages[image], tag), "%s: %s of a set is not listed", title, member)
			}
		}
	}
	problems, err := reader.Verify(t.Context(), "prod", false)
	require.NoError(t, err, title)
	assert.Empty(t, problems, title)
	return refused
}

// checkAsked checks that an op of a verb that was reported as done holds, or that an output names what is in its place.
func (x *crossed) checkAsked(
	t *testing.T, title string, is ops.State, log []catalog.Entry, e catalog.Entry, acts []ran,
) {
	t.Helper()
	for _, l := range ops.Lost(is, e.Op) {
		isNamed := slices.ContainsFunc(log, func(later catalog.Entry) bool { return later.Tag == l.By && later.Turn > e.Turn })
		for _, a := range acts {
			isNamed = isNamed || slices.ContainsFunc(a.got.Others, func(o publish.Other) bool {
				return o.Op == e.Tag || o.Op == l.By
			}) || slices.ContainsFunc(a.got.Outcomes, func(o publish.Outcome) bool {
				return catalog.Member(o.Image, o.Tag) == l.Change.Member() && o.Note != "" && !o.Changed
			})
		}
		assert.True(t, isNamed, "%s: %s of %s is not as asked, and nobody says so: %s", title, l.Change.Member(), e.By, l.Why)
	}
}

// Two verbs at once as processes of their own, beside real registries, any verb with any other: what was reported as done
// holds or is named, nothing that is withdrawn is offered, and no problem is left. The pairs of internal/catalog/publish
// are stopped at each request, in memory; here the registry and the clock decide how they cross.
func TestVerbsOfTwoProcessesCross(t *testing.T) {
	t.Parallel()
	rounds, seed := story.SoakRounds(t, 200), uint64(time.Now().UnixNano())
	for label, program := range catalogRegistries() {
		t.Run(label, func(t *testing.T) {
			t.Parallel()
			first := newCrossed(t, newPublishers(t, program))
			random := mathrand.New(mathrand.NewPCG(seed, 0))
			codes, refused, met, began := map[int]int{}, 0, 0, time.Now()
			for round := range rounds {
				x := first.again(t, round)
				all := x.verbs()
				a, b := all[random.IntN(len(all))], all[random.IntN(len(all))]
				later := time.Duration(random.IntN(200)) * time.Millisecond
				acts := x.both(t, a, b, later)
				title := fmt.Sprintf("seed %d, round %d: %q and, %s later, %q", seed, round, a, later, b)
				refused += x.check(t, title, acts)
				for _, is := range acts {
					codes[is.code]++
				}
				if slices.ContainsFunc(acts, func(is ran) bool { return len(is.got.Others) > 0 }) {
					met++
				}
			}
			t.Logf("seed %d: %d rounds in %s, exit codes %v, %d refused, in %d one had the other's change in its result",
				seed, rounds, time.Since(began).Round(time.Second), codes, refused, met)
		})
	}
}
