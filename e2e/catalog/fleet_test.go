// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"encoding/json"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
	"github.com/kubic-project/image-update-agent/internal/catalog/fleet"
	"github.com/kubic-project/image-update-agent/internal/prometheus"
)

// awaitFleet waits until `image-catalog fleet prod` says a sentence.
func (p *publishers) awaitFleet(t *testing.T, server, want string) {
	t.Helper()
	node.Eventually(t, want, story.Ready, func() error {
		out, errs, _ := p.run(t, "fleet", "prod", "velum", "--prometheus", server)
		if !strings.Contains(out, want) {
			return errors.New(out + errs)
		}
		return nil
	})
}

// activeAlerts returns the names of alerts as kured asks for them.
func activeAlerts(t *testing.T, server string) (names []string) {
	t.Helper()
	c, err := prometheus.New(server, "", "test")
	require.NoError(t, err)
	alerts, err := c.Query(t.Context(), "ALERTS")
	require.NoError(t, err)
	for _, a := range alerts {
		if a.Value != 0 {
			names = append(names, a.Labels["alertname"])
		}
	}
	return names
}

// From a promotion to the node that runs it, and to one that fails, with a real Prometheus that scrapes a real agent.
func TestFleetSeesAReleaseThrough(t *testing.T) {
	t.Parallel()
	p, port := followsProd(t, node.Containerd2)
	n := p.node
	address := story.Address(n.FreePort())
	n.WriteFile(story.ConfigFile, n.ReadFile(story.ConfigFile)+"metrics: {listen: '"+address+"'}\nsettle: 1s\n")
	require.Zero(t, n.Agent("reload").Code)
	rules := filepath.Join(story.Checkout(t), "packaging/prometheus/image-update-agent.rules.yml")
	server := story.StartPrometheus(t, rules, story.Target{Node: "n1", Address: address})
	p.awaitFleet(t, server, ":4.0.0-rev1-build1.1: 1 of 1 node run it\n")

	p.build(t, "4.0.0-rev1-build1.2")
	p.does(t, "promote", "stage", "prod", n.Registry.Ref("demo/velum:4.0.0-rev1-build1.2"), "--rollout", "48h", "--key", p.key)
	p.awaitFleet(t, server, ":4.0.0-rev1-build1.2: 0 of 1 node run it, 1 without it\n")
	story.Check(t, n)
	p.awaitFleet(t, server, ":4.0.0-rev1-build1.2: 0 of 1 node run it, 1 staged\n")
	require.Zero(t, n.Agent("hold", "velum").Code)
	p.awaitFleet(t, server, ":4.0.0-rev1-build1.2: 0 of 1 node run it, 1 held\n")
	require.Zero(t, n.Agent("resume", "velum").Code)
	require.Zero(t, n.Agent("apply", "velum").Code)
	p.awaitFleet(t, server, ":4.0.0-rev1-build1.2: 1 of 1 node run it\n")

	n.Registry.PublishFaulty("demo/velum", "4.0.0-rev1-build1.3", node.Image{}, node.Crash)
	p.does(t, "add", "stage", n.Registry.Ref("demo/velum:4.0.0-rev1-build1.3"), "--key", p.key)
	p.promote(t, "4.0.0-rev1-build1.3")
	require.Equal(t, status.StateStaged, story.Check(t, n).State)
	assert.NotContains(t, activeAlerts(t, server), "ImageUpdateApplying")
	applied := make(chan node.Result, 1)
	go func() { applied <- n.Agent("apply", "velum") }()
	node.Eventually(t, "the alert that holds kured", story.Ready, func() error {
		if !slices.Contains(activeAlerts(t, server), "ImageUpdateApplying") {
			return errors.New("not active")
		}
		return nil
	})
	require.Equal(t, 1, (<-applied).Code)
	n.WaitAnswer(port, "4.0.0-rev1-build1.2")
	p.awaitFleet(t, server, ":4.0.0-rev1-build1.3: 0 of 1 node run it, 1 failed (n1)\n")
	out, errs, code := p.run(t, "fleet", "prod", "--prometheus", server, "--output", "json")
	require.Equal(t, 1, code, errs)
	var list []fleet.Standing
	require.NoError(t, json.Unmarshal([]byte(out), &list))
	require.Len(t, list, 1)
	assert.Equal(t, []string{"n1"}, list[0].FailedNodes)
}
