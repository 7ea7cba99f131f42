// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
)

// Each refused tag is listed with its rule, and every offer with the host that answered.
func TestPlanExplainsRefusals(t *testing.T) {
	t.Parallel()
	n := story.Started(t)
	for _, long := range []string{"4.0.0-rev3-build1.1", "4.0.1-rev1-build1.1", "4.1.0-rev1-build1.1", "5.0.0-rev1-build1.1"} {
		story.Rel(n, "demo/velum", long)
	}
	n.WriteFile(story.ConfigFile, "repositories:\n- match: "+n.Registry.Ref("demo/velum")+
		"\n  updates: minor\n  max: 4.0\n  deny: [\"4.0.1-*\", \"*-rev3\"]\n")
	r := n.Agent("plan", "--output", "json")
	require.Zero(t, r.Code, r.Stderr)
	var plan struct {
		PodManifests []struct {
			Images []struct {
				To, Host string
				Mirror   bool
				Refused  []policy.Refusal
			}
		}
	}
	require.NoError(t, json.Unmarshal([]byte(r.Stdout), &plan))
	image := plan.PodManifests[0].Images[0]
	assert.Equal(t, "4.0.0-rev2-build1.1", image.To)
	assert.Equal(t, n.Registry.Host, image.Host)
	assert.False(t, image.Mirror)
	var rules []string
	for _, refused := range image.Refused {
		rules = append(rules, refused.Tag+" "+refused.Rule)
	}
	assert.Equal(t, []string{"5.0.0-rev1 updates", "4.1.0-rev1 max", "4.0.1-rev1 deny", "4.0.0-rev3 deny"}, rules)
	assert.Contains(t, n.Agent("plan").Stdout, "a major change is larger than updates: minor")
}

// A new digest is read twice before it counts; one that the node has is not.
func TestNewDigestIsReadTwice(t *testing.T) {
	t.Parallel()
	n := story.Started(t)
	n.WriteFile(story.ConfigFile, "confirmAfter: 1s\n")
	n.Registry.Forget()
	s := story.Cycle(t, n, 0)
	assert.Equal(t, status.StateStaged, s.State, s.Reason)
	heads := map[string]int{}
	for _, r := range n.Registry.Requests() {
		if r.Method == http.MethodHead && r.Kind == node.Manifest {
			heads[r.Reference]++
		}
	}
	assert.Equal(t, 2, heads["4.0.0-rev2"], "%v", heads)
	assert.Equal(t, 1, heads["4.0.0-rev1"], "%v", heads)

	// A temporary digest: the registry moves the tag, and back between the readings.
	before := story.Look(t, n)
	moment := story.Rel(n, "demo/velum", "4.0.0-rev1-build1.2")
	var readings atomic.Int32
	n.Registry.Intercept(n.Registry.Watch(func(q node.Request, p node.Part) {
		if q.Method == http.MethodHead && q.Reference == "4.0.0-rev1" && p == node.None && readings.Add(1) == 2 {
			n.Registry.Tag("demo/velum", "4.0.0-rev1-build1.1", "4.0.0-rev1")
		}
	}))
	story.Cycle(t, n, 0)
	assert.GreaterOrEqual(t, readings.Load(), int32(2))
	images, _ := story.Stored(t, n)
	for name, digest := range images {
		assert.NotEqual(t, moment, digest, name)
	}
	before.Unchanged(t, n)
}

// A tag that was moved to an older build than the running one is reported, and followed only if allowed.
func TestTagMovedToAnOlderBuild(t *testing.T) {
	t.Parallel()
	n := node.Start(t, node.Options{Containerd: node.Containerd2, Kubelet: true})
	port := n.FreePort()
	made := time.Date(2026, 4, 1, 0, 0, 0, 0, time.UTC)
	story.Template(n, port, n.Registry.Ref("demo/velum:4.0.0-rev1"))
	n.Registry.Publish("demo/velum", "4.0.0-rev1-build1.5", node.Image{Created: made})
	story.IsCurrent(t, story.Cycle(t, n, 0))
	node.Eventually(t, "the pod", story.Ready, func() error {
		_, err := node.Answer(port)
		return err
	})
	story.Cycle(t, n, 0)

	older := n.Registry.Publish("demo/velum", "4.0.0-rev1-build1.3", node.Image{Created: made.Add(-time.Hour)})
	s := story.Cycle(t, n, 4)
	assert.Equal(t, status.StateHeld, s.State, s.Reason)
	i := story.ImageOf(t, s, "velum.yaml")
	assert.Nil(t, i.Offered)
	require.NotEmpty(t, i.Refused)
	assert.Equal(t, policy.RuleOlder, i.Refused[0].Rule)
	assert.Equal(t, "4.0.0-rev1-build1.3", i.Refused[0].Tag)

	require.NoError(t, os.Remove(n.Path(story.RecordFile)))
	s = story.Cycle(t, n, 4)
	assert.Nil(t, story.ImageOf(t, s, "velum.yaml").Offered, "what runs is known without the record, too")

	n.WriteFile(story.ConfigFile, "repositories: [{match: \"*\", older: true}]\n")
	s = story.Cycle(t, n, 4) // without the record, build1.5 is one that the tag does not name yet
	require.NotNil(t, story.ImageOf(t, s, "velum.yaml").Offered, s.Reason)
	assert.Equal(t, older, story.ImageOf(t, s, "velum.yaml").Offered.Digest.String())
}

// A build of another application that was tagged into the repository by mistake is detected by its label.
func TestBuildOfAnotherApplication(t *testing.T) {
	t.Parallel()
	n := story.Started(t)
	velum := map[string]string{"org.opensuse.reference": "registry.suse.com/demo/velum:4.0.0-rev2-build1.1"}
	grafana := map[string]string{"org.opensuse.reference": "registry.suse.com/demo/grafana:4.0.0-rev3-build1.1"}
	n.Registry.Publish("demo/velum", "4.0.0-rev2-build1.1", node.Image{Labels: velum})
	require.NoError(t, os.RemoveAll(n.Path(story.RecordFile)))
	story.Template(n, 1, n.Registry.Ref("demo/velum:4.0.0-rev2"))
	story.Cycle(t, n, 0)
	n.Registry.Publish("demo/velum", "4.0.0-rev3-build1.1", node.Image{Labels: grafana})
	s := story.Cycle(t, n, 0)
	i := story.ImageOf(t, s, "velum.yaml")
	require.NotEmpty(t, i.Refused, "%+v", i)
	assert.Equal(t, policy.RuleOrigin, i.Refused[0].Rule)
	assert.Contains(t, i.Refused[0].Reason, "demo/grafana")
}

// A person's hold survives a restart of the daemon, prevents an apply, and ends when it is removed.
func TestHoldAndResume(t *testing.T) {
	t.Parallel()
	n := story.Started(t)
	n.WriteFile(story.ConfigFile, "interval: 0\n")
	daemon := story.StartDaemonWith(t, n)
	require.Equal(t, status.StateStaged, story.Check(t, n).State)
	r := n.Agent("hold", "velum", "--reason", "demo on Friday", "--until", "72h")
	require.Zero(t, r.Code, r.Stderr)
	daemon.Signal(15)
	require.Zero(t, daemon.Wait(story.Ready).Code)
	story.StartDaemonWith(t, n)
	s := story.Check(t, n)
	assert.Equal(t, status.StateHeld, s.State)
	assert.Contains(t, s.Reason, "demo on Friday")
	r = n.Agent("apply")
	assert.Equal(t, 4, r.Code)
	assert.Contains(t, r.Stdout+r.Stderr, "demo on Friday")
	require.Zero(t, n.Agent("resume", "velum").Code)
	assert.Equal(t, 3, n.Agent("resume", "velum").Code, "there is none any more")
	assert.Equal(t, status.StateStaged, story.St(t, n).State)
}

// The daemon's metrics are on its read-only socket, including the budget of requests, and stay after a reload.
func TestMetrics(t *testing.T) {
	t.Parallel()
	n := story.Started(t)
	n.WriteFile(story.ConfigFile, "interval: 0\nrequestsPerHour: 500\n")
	daemon := story.StartDaemonWith(t, n)
	story.Check(t, n)
	numbers := story.Scrape(t, n)
	assert.Contains(t, numbers, "image_update_agent_registry_request_budget 500\n")
	assert.Contains(t, numbers, `image_update_agent_state{state="staged"} 1`)
	assert.Contains(t, numbers, `image_update_agent_registry_requests_total{kind="metadata"}`)
	assert.NotContains(t, numbers, "image_update_agent_registry_request_budget_remaining 500\n", "some of it is spent")
	n.WriteFile(story.ConfigFile, "interval: 0\nrequestsPerHour: 300\n")
	daemon.Signal(1)
	node.Eventually(t, "the other budget", story.Ready, func() error {
		if !strings.Contains(story.Scrape(t, n), "image_update_agent_registry_request_budget 300\n") {
			return os.ErrNotExist
		}
		return nil
	})
}
