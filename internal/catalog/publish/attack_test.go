// SPDX-License-Identifier: Apache-2.0

package publish_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/catalog"
	"github.com/kubic-project/image-update-agent/internal/catalog/publish"
)

// attacker is a registry that does not show what it has, and lists what it does not have.
type attacker struct {
	*memory

	hides    func(tag string) bool // from HEAD and GET, and the list
	lists    []string              // besides
	late     int                   // so many lists are those of the beginning
	served   map[string]string     // by tag: the tag whose manifest it serves
	requests int

	before []string
}

func (a *attacker) hidden(tag string) (string, bool) {
	a.requests++
	if to := a.served[tag]; to != "" {
		tag = to
	}
	return tag, a.hides != nil && a.hides(tag)
}

func (a *attacker) Head(ctx context.Context, repository, tag string) (digest.Digest, error) {
	tag, isHidden := a.hidden(tag)
	if isHidden {
		return "", fmt.Errorf("%s: %w", tag, release.ErrNotFound)
	}
	return a.memory.Head(ctx, repository, tag)
}

func (a *attacker) Manifest(ctx context.Context, repository, tag string) (string, []byte, error) {
	tag, isHidden := a.hidden(tag)
	if isHidden {
		return "", nil, fmt.Errorf("%s: %w", tag, release.ErrNotFound)
	}
	return a.memory.Manifest(ctx, repository, tag)
}

func (a *attacker) Tags(ctx context.Context, repository string) ([]string, error) {
	a.requests++
	tags, err := a.memory.Tags(ctx, repository)
	if a.late > 0 {
		a.late--
		tags = a.before
	}
	tags = slices.DeleteFunc(slices.Clone(tags), func(tag string) bool { return a.hides != nil && a.hides(tag) })
	return append(tags, a.lists...), err
}

// Nothing that a registry does makes a signed channel unchangeable once it behaves again, or a publisher spin, or offers
// again what was withdrawn.
func TestARegistryAsAnAttacker(t *testing.T) {
	t.Parallel()
	var versions, listedOps []string
	for n := range 1001 {
		versions = append(versions, catalog.VersionTag("prod", uint64(n+4)))
		listedOps = append(listedOps, fmt.Sprintf("op-prod-99991231T235959Z-%012x", n))
	}
	isVersion := func(tag string) bool { return strings.HasPrefix(tag, "prod-v") }
	for title, c := range map[string]struct {
		attack func(a *attacker)
		kind   publish.Kind // "": the withdrawal is published
	}{
		"it hides one version":                    {func(a *attacker) { a.hides = func(tag string) bool { return tag == "prod-v00000004" } }, ""},
		"it hides every version":                  {func(a *attacker) { a.hides = isVersion }, publish.KindTimeout},
		"it lists versions that it does not have": {func(a *attacker) { a.lists = versions }, ""},
		"it lists ops that it does not have":      {func(a *attacker) { a.lists = listedOps }, ""},
		"it has versions of nobody": {func(a *attacker) {
			for _, tag := range versions {
				a.tags[tag] = a.tags["stage"]
			}
		}, ""},
		"it lists late":              {func(a *attacker) { a.late = 4 }, ""},
		"it never lists":             {func(a *attacker) { a.late = 1 << 20 }, publish.KindTimeout},
		"it hides all ops":           {func(a *attacker) { a.hides = func(tag string) bool { return strings.HasPrefix(tag, "op-") } }, publish.KindTimeout},
		"it serves an older version": {func(a *attacker) { a.served = map[string]string{"prod": "prod-v00000002"} }, publish.KindTimeout},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t, "ci", "prod")
			h.begin(1, "prod")
			p := h.as(publish.Trust{}, "prod")
			h.does(p, "prod", added(releaseOf("velum", 1, ""), releaseOf("velum", 2, "")), publish.How{})
			h.does(p, "prod", added(releaseOf("etcd", 1, "")), publish.How{})
			a := &attacker{memory: h.m}
			a.before, _ = h.m.Tags(t.Context(), memoryRepository)
			c.attack(a)
			withdraw := publish.Withdraw(publish.Withdrawal{Images: []string{"velum:" + build(2)}, Reason: "bsc#1"})
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				p := h.with(publish.Trust{}, func(o *publish.Options) { o.Registry, o.Jobs = a, 1 }, "prod")
				_, err := p.Change(t.Context(), "prod", withdraw, publish.How{})
				assert.Equal(t, c.kind, kindOf(err), "%v", err)
				assert.Less(t, a.requests, 1500, "it does not spin")
				assert.Less(t, time.Since(began), 10*time.Minute)
			})
			for range 2 {
				_, err := h.as(publish.Trust{}, "prod").Change(t.Context(), "prod", withdraw, publish.How{})
				require.NoError(t, err, "when it behaves again")
				assert.NotContains(t, h.offers("prod", "prod"), images+"velum:"+build(2))
			}
			h.does(h.as(publish.Trust{}, "prod"), "prod", added(releaseOf("velum", 3, "")), publish.How{})
			assert.NotContains(t, h.offers("prod", "prod"), images+"velum:"+build(2))
		})
	}
}

// dated is a registry that says what time it is.
type dated struct {
	*memory

	at time.Time
}

func (d dated) Date() time.Time { return d.at }

// A machine whose clock is more than a day ahead publishes nothing: nodes would refuse it.
func TestAClockThatIsAheadPublishesNothing(t *testing.T) {
	t.Parallel()
	h := newHouse(t, "ci", "prod")
	h.begin(1, "prod")
	tags := len(h.m.tags)
	for behind, want := range map[time.Duration]publish.Kind{30 * time.Hour: publish.KindClock, 365 * 24 * time.Hour: publish.KindClock, 20 * time.Hour: ""} {
		registry := dated{h.m, noon.Add(-behind)}
		p := h.with(publish.Trust{}, func(o *publish.Options) { o.Registry = registry }, "prod")
		_, err := p.Change(t.Context(), "prod", publish.Refresh(noon.Add(behind)), publish.How{DryRun: want == ""})
		assert.Equal(t, want, kindOf(err), "%v", err)
	}
	assert.Len(t, h.m.tags, tags)
	// One that is there already is found, and the next version replaces it.
	h.publishAs(t, "prod", func(m *catalog.Manifest) { m.Created = noon.Add(30 * time.Hour) })
	p := h.as(publish.Trust{}, "prod")
	found, err := p.Verify(t.Context(), "prod", false)
	require.NoError(t, err)
	assert.Contains(t, fmt.Sprint(found), "more than a day ahead: nodes refuse it")
	h.does(p, "prod", publish.Refresh(noon.Add(time.Hour)), publish.How{})
	found, err = p.Verify(t.Context(), "prod", false)
	require.NoError(t, err)
	assert.NotContains(t, fmt.Sprint(found), "ahead")
}

// A version, or a version tag, so far above that nodes refuse it is found.
func TestAVersionThatIsFarAboveIsFound(t *testing.T) {
	t.Parallel()
	h := newHouse(t, "ci", "prod")
	h.begin(1, "prod")
	p := h.as(publish.Trust{}, "prod")
	find := func() string {
		found, err := p.Verify(t.Context(), "prod", false)
		require.NoError(t, err)
		return fmt.Sprint(found)
	}
	h.m.tags[catalog.VersionTag("prod", catalog.MaxJump)] = h.m.tags["prod"]
	assert.Contains(t, find(), "above the channel's version 1: its publisher was stopped, or it is no version")
	h.m.tags[catalog.VersionTag("prod", catalog.MaxJump+1)] = h.m.tags["prod"]
	assert.Contains(t, find(), "too far above the channel's version 1: whoever knows that version ignores it")
	h.publishAs(t, "prod", func(m *catalog.Manifest) { m.Version = catalog.MaxJump + 1 })
	assert.Contains(t, find(), "too far above version 1: nodes that know that version refuse it")
}

// Four guards: a version tag of another channel is no version to revert to; what was signed elsewhere is compared with the
// highest version that this machine knows, too; a blob is what its name says; a shard begins with the image that its
// manifest names.
func TestGuardsOfWhatIsRead(t *testing.T) {
	t.Parallel()
	t.Run("revert to a version of another channel", func(t *testing.T) {
		t.Parallel()
		h := newHouse(t, "ci", "prod")
		h.begin(1, "ci") // one key signs both
		h.m.tags["prod-v00000002"] = h.m.tags["stage-v00000002"]
		h.m.tags["prod-v00000003"] = h.m.tags["prod-v00000001"]
		_, err := h.as(publish.Trust{}, "ci").Change(t.Context(), "prod", publish.Revert(2, ""), publish.How{})
		require.ErrorContains(t, err, "the tag names version 2 of channel stage")
		_, err = h.as(publish.Trust{}, "ci").Change(t.Context(), "prod", publish.Revert(3, ""), publish.How{})
		require.ErrorContains(t, err, "the tag names version 1 of channel prod")
	})
	t.Run("publish asks the state", func(t *testing.T) {
		t.Parallel()
		h := newHouse(t, "ci", "prod")
		h.begin(1, "prod")
		state, dir := filepath.Join(t.TempDir(), "versions.json"), filepath.Join(t.TempDir(), "out")
		trust := publish.Trust{All: [][]byte{h.public("prod")}}
		h.does(h.as(trust), "prod", publish.Refresh(noon.Add(time.Hour)), publish.How{Out: dir})
		text := fmt.Sprintf(`{"catalogs":{%q:{"prod":{"version":3,"digest":%q}}}}`, memoryRepository, digest.FromString("3"))
		require.NoError(t, os.WriteFile(state, []byte(text), 0o600))
		payload, err := os.ReadFile(filepath.Join(dir, publish.PayloadFile))
		require.NoError(t, err)
		sig := signedBytes(t, h.keys["prod"][0], payload)
		p := h.with(trust, func(o *publish.Options) { o.State = state })
		_, err = p.PublishDir(t.Context(), dir, [][]byte{[]byte(sig)}, false)
		assert.Equal(t, publish.KindOlder, kindOf(err), "%v", err)
		require.ErrorContains(t, err, "the channel went back from 3 to 2")
		assert.NotContains(t, h.m.tags, "prod-v00000002")
	})
	t.Run("a blob of another digest", func(t *testing.T) {
		t.Parallel()
		h := newHouse(t, "ci", "prod")
		h.begin(1, "prod")
		dir := filepath.Join(t.TempDir(), "out")
		trust := publish.Trust{All: [][]byte{h.public("prod")}}
		h.does(h.as(trust), "prod", added(releaseOf("velum", 1, "")), publish.How{Out: dir})
		blobs, err := os.ReadDir(filepath.Join(dir, "blobs"))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, "blobs", blobs[0].Name()), []byte("another"), 0o600))
		_, err = h.as(trust).PublishDir(t.Context(), dir, nil, true)
		assert.Equal(t, publish.KindInput, kindOf(err), "%v", err)
		require.ErrorContains(t, err, "has digest "+digest.FromString("another").String())
	})
}
