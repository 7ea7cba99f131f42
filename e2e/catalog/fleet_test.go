// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
	"github.com/kubic-project/image-update-agent/internal/catalog/census"
	"github.com/kubic-project/image-update-agent/internal/fleet/prometheus"
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

// awaitAlert waits until the alert that holds kured is active, or is not.
func awaitAlert(t *testing.T, server string, active bool) {
	t.Helper()
	node.Eventually(t, "the alert that holds kured", story.Ready, func() error {
		if names := activeAlerts(t, server); slices.Contains(names, "ImageUpdateApplying") != active {
			return fmt.Errorf("want active %t: %v", active, names)
		}
		return nil
	})
}

// From a promotion to the node that runs it, and to one that fails, with a real Prometheus that scrapes a real agent.
func TestFleetSeesAReleaseThrough(t *testing.T) {
	t.Parallel()
	p, port := followsProd(t, node.Containerd2)
	n := p.node
	address := story.Address(n.FreePort())
	n.WriteFile(story.ConfigFile, n.ReadFile(story.ConfigFile)+"metrics: {listen: '"+address+"'}\nsettle: 3s\n")
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
	awaitAlert(t, server, false) // Prometheus evaluates its rules after the apply is over
	pass := story.HoldPulls(n)   // until Prometheus has evaluated its rules
	applied := make(chan node.Result, 1)
	go func() { applied <- n.Agent("apply", "velum") }()
	awaitAlert(t, server, true)
	pass()
	require.Equal(t, 1, (<-applied).Code)
	n.WaitAnswer(port, "4.0.0-rev1-build1.2")
	p.awaitFleet(t, server, ":4.0.0-rev1-build1.3: 0 of 1 node run it, 1 failed (n1)\n")
	node.Eventually(t, "the same as JSON", story.Ready, func() error { // a busy node may miss a scrape, and is silent then
		out, errs, code := p.run(t, "fleet", "prod", "--prometheus", server, "--output", "json")
		var list []census.Standing
		err := json.Unmarshal([]byte(out), &list)
		if err == nil && (code != 1 || len(list) != 1 || !slices.Equal(list[0].FailedNodes, []string{"n1"})) {
			err = fmt.Errorf("%d: %s%s", code, out, errs)
		}
		return err
	})
}

// past writes what Prometheus has scraped each minute of the nodes of a fleet.
type past struct {
	text strings.Builder
	now  time.Time
}

// sample writes the samples of one series, from and until so many minutes ago.
func (p *past) sample(metric, labels string, from, until int, value func(ago int) float64) {
	for ago := from; ago >= until; ago-- {
		fmt.Fprintf(&p.text, "%s{%s} %f %d\n", metric, labels, value(ago), p.now.Add(-time.Duration(ago)*time.Minute).Unix())
	}
}

func always(value float64) func(int) float64 { return func(int) float64 { return value } }

// Prometheus itself says which nodes are lost, silent, or several machines.
func TestFleetByWhatPrometheusHasSeen(t *testing.T) {
	t.Parallel()
	p := &past{now: time.Now()}
	release := census.Release{Image: "r.io/velum", Tag: "2", Digest: "sha256:2"}
	has := func(node, state string, from, until int) {
		p.sample("image_update_agent_release_info",
			`instance="`+node+`",catalog="r.io/c:prod",repository="r.io/velum",tag="2",digest="sha256:2",state="`+state+`"`, from, until, always(1))
	}
	has("begun and gone", "running", 60, 30)
	has("begun for a minute", "starting", 601, 600)
	has("failed before a day", "failed", 1500, 1470)
	has("moved", "running", 60, 10)
	has("gone", "staged", 60, 30)
	has("reboots", "running", 60, 10)
	has("runs", "running", 60, 0)
	has("stuck", "running", 120, 0)
	has("twice", "staged", 60, 0)
	for _, node := range []string{"shared", "mixed"} {
		has(node, "running", 60, 0)
	}
	p.sample("image_update_agent_release_info",
		`instance="moved",catalog="r.io/c:stage",repository="r.io/velum",digest="sha256:1",state="running"`, 9, 0, always(1))
	cycles := "image_update_agent_loop_turns_total"
	p.sample(cycles, `instance="stuck"`, 120, 0, always(7))
	p.sample(cycles, `instance="runs"`, 120, 0, func(ago int) float64 { return float64(100 - ago/10) })
	checks, at := "image_update_agent_last_check_timestamp_seconds", float64(p.now.Unix()-7200)
	for job, other := range map[string]float64{"a": 0, "b": 1} {
		p.sample(checks, `instance="twice",job="`+job+`"`, 60, 0, func(ago int) float64 {
			return at - 60*float64(ago/(30+int(other))) // one server learns of a check a minute later
		})
		p.sample(checks, `instance="shared",job="`+job+`"`, 60, 0, always(at+other))
	}
	p.sample(checks, `instance="mixed"`, 60, 0, func(ago int) float64 { return at + float64(ago%2) })
	p.text.WriteString("# EOF\n")

	c, err := prometheus.New(story.StartPrometheusWith(t, p.text.String()), "", "test")
	require.NoError(t, err)
	list, err := census.Ask(t.Context(), c, "r.io/c:prod", []census.Release{release})
	require.NoError(t, err)
	assert.Equal(t, []census.Standing{{
		Image: "r.io/velum", Tag: "2", Digest: "sha256:2", Nodes: 9, Running: 4, Staged: 1, Silent: 4, FailedNodes: []string{},
		SilentNodes: []string{"begun and gone", "begun for a minute", "gone", "reboots"},
		LostNodes:   []string{"begun and gone", "begun for a minute", "stuck"},
		SharedNodes: []string{"mixed", "shared"},
	}}, list)
	_, err = census.Ask(t.Context(), c, "mirror/c:prod", []census.Release{release})
	var nothing *census.NothingError
	require.ErrorAs(t, err, &nothing)
	assert.Equal(t, []string{"r.io/c:prod", "r.io/c:stage"}, nothing.Catalogs)
}
