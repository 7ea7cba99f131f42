// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
)

// followsProd is a node that runs velum of a signed channel prod, with its publisher.
func followsProd(t *testing.T, server node.Version) (p *publishers, port int) {
	t.Helper()
	n := node.Start(t, node.Options{Containerd: server, Kubelet: true})
	p = &publishers{node: n, registry: n.Registry, program: n.CatalogProgram()}
	p.env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "IMAGE_CATALOG=" + n.Registry.Ref("catalog")}
	p.key, p.pub = catalogKeys(t)
	key, err := os.ReadFile(p.pub)
	require.NoError(t, err)
	n.WriteFile("etc/image-update-agent/catalog-keys/prod.pem", string(key))
	n.WriteFile(story.ConfigFile, "catalog:\n  repository: "+n.Registry.Ref("catalog")+"\n  channel: prod\n"+
		"  keys: [/etc/image-update-agent/catalog-keys]\n")
	for _, channel := range []string{"stage", "prod"} {
		p.does(t, "init", channel, "--key", p.key)
	}
	p.build(t, "4.0.0-rev1-build1.1")
	p.promote(t, "4.0.0-rev1-build1.1")
	port = n.FreePort()
	story.Template(n, port, n.Registry.Ref("demo/velum:__TAG__"))
	story.Cycle(t, n, 0)
	n.WaitAnswer(port, "4.0.0-rev1-build1.1")
	story.StartDaemonWith(t, n, "UPDATE_POLLING_INTERVAL=0")
	require.Equal(t, status.StateCurrent, story.Check(t, n).State)
	return p, port
}

// build is a new build: its floating tags move, and stage gets it.
func (p *publishers) build(t *testing.T, long string, more ...string) {
	t.Helper()
	story.Rel(p.node, "demo/velum", long)
	p.does(t, append([]string{"add", "stage", p.registry.Ref("demo/velum:" + long), "--key", p.key}, more...)...)
}

func (p *publishers) promote(t *testing.T, long string) {
	t.Helper()
	p.does(t, "promote", "stage", "prod", p.registry.Ref("demo/velum:"+long), "--key", p.key)
}

// A floating tag that is ahead of prod is never started: not by a crash, not by an apply.
func TestCatalogBindsKubelet(t *testing.T) {
	t.Parallel()
	for _, server := range node.Containerds() {
		t.Run(string(server), func(t *testing.T) {
			t.Parallel()
			p, port := followsProd(t, server)
			n := p.node
			first := story.ImageOf(t, story.St(t, n), "velum.yaml")
			assert.True(t, first.Bound)
			assert.Contains(t, n.ReadFile(story.VelumYAML), "@"+first.Running.Digest.String())
			assert.Contains(t, n.ReadFile(story.VelumYAML), "imagePullPolicy: Always")

			p.build(t, "4.0.0-rev1-build1.2")
			s := story.Check(t, n)
			require.Equal(t, status.StateCurrent, s.State, "stage is not prod: %s", s.Reason)
			before := story.Container(t, n)
			n.CRI().StopContainer(before)
			node.Eventually(t, "kubelet starts it again", story.Ready, func() error {
				again, err := n.CRI().Running("dashboard")
				if err == nil && again.GetId() == before {
					err = errors.New("the old one runs")
				}
				return err
			})
			n.WaitAnswer(port, "4.0.0-rev1-build1.1")

			p.build(t, "4.0.0-rev1-build1.3")
			p.promote(t, "4.0.0-rev1-build1.2")
			s = story.Check(t, n)
			require.Equal(t, status.StateStaged, s.State, s.Reason)
			r := n.Agent("apply", "velum")
			require.Zero(t, r.Code, r.Stdout+r.Stderr)
			n.WaitAnswer(port, "4.0.0-rev1-build1.2")
			images, _ := story.Stored(t, n) // CRI's list would be later
			digest := func(tag string) string { return story.EntryOf(t, n.Registry, "demo/velum", tag).Digest }
			assert.Contains(t, fmt.Sprint(images), digest("4.0.0-rev1-build1.2"))
			assert.NotContains(t, fmt.Sprint(images), digest("4.0.0-rev1-build1.3"), "not even staged")
		})
	}
}

// A withdrawal reaches the node with its reason; an older version does not take it back.
func TestCatalogWithdrawsAndIsReplayed(t *testing.T) {
	t.Parallel()
	p, port := followsProd(t, node.Containerd2)
	n := p.node
	p.build(t, "4.0.0-rev1-build1.2")
	p.promote(t, "4.0.0-rev1-build1.2")
	story.Check(t, n)
	require.Zero(t, n.Agent("apply", "velum").Code)
	promoted := p.inspect(t, "prod").Version

	p.does(t, "withdraw", "prod", n.Registry.Ref("demo/velum:4.0.0-rev1-build1.2"), "--key", p.key,
		"--reason", "bsc#1199876: loses its session secret", "--instead", "4.0.0-rev1-build1.1")
	s := story.Check(t, n)
	assert.Equal(t, status.StateHeld, s.State, "only a lower one is promoted: %s", s.Reason)
	assert.Contains(t, s.Reason, "bsc#1199876: loses its session secret (instead: 4.0.0-rev1-build1.1)")
	assert.Contains(t, n.ReadFile(story.GrainFile), "loses its session secret")
	assert.Contains(t, n.Agent("catalog", "show").Stdout, "withdrawn: bsc#1199876")
	n.WaitAnswer(port, "4.0.0-rev1-build1.2")

	n.Registry.Tag("catalog", fmt.Sprintf("prod-v%08d", promoted), "prod")
	s = story.Check(t, n)
	assert.Equal(t, status.StateFailed, s.State)
	assert.True(t, s.HasReason(status.KindCatalog), s.Reason)
	assert.Equal(t, promoted+1, s.Catalog.Version, "the verified one stays")
	assert.NotNil(t, story.ImageOf(t, s, "velum.yaml").Withdrawn)

	r := n.Agent("catalog", "forget", "--output", "json")
	require.Zero(t, r.Code, r.Stdout+r.Stderr)
	assert.Equal(t, promoted, story.Parsed(t, r).Catalog.Version)

	n.WriteFile(story.ConfigFile, strings.Replace(n.ReadFile(story.ConfigFile), "channel: prod", "channel: prod\n  allowLower: true", 1))
	p.does(t, "refresh", "prod", "--key", p.key)
	require.Zero(t, n.Agent("reload").Code)
	s = story.Check(t, n)
	require.Equal(t, status.StateStaged, s.State, s.Reason)
	require.Zero(t, n.Agent("apply", "velum").Code)
	n.WaitAnswer(port, "4.0.0-rev1-build1.1")
}
