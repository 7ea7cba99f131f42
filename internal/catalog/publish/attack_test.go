// SPDX-License-Identifier: Apache-2.0

package publish_test

import (
	"context"
	"fmt"
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
