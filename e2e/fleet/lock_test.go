// SPDX-License-Identifier: Apache-2.0

package fleet_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/fleet"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/e2e/fleetserver"
	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
	"github.com/kubic-project/image-update-agent/internal/registry/registrytest"
)

// lockOfANode is a fleet lock of a real node, named node1, and of another one.
type lockOfANode struct {
	settings   string // of apply.lock
	kubeconfig string // the node's /etc/kubernetes/admin.conf; empty: none
	other      fleet.Locker
	name       string          // for people
	held       string          // what its refusal says while other has it
	requests   func() []string // by the node's agent
}

// isAgent reports whether a User-Agent is that of a node's agent, and not that of a test.
func isAgent(name string) bool {
	return strings.HasPrefix(name, "image-update-agent/") && name != "image-update-agent/test"
}

func serverOfANode(t *testing.T) lockOfANode {
	t.Helper()
	var mu sync.Mutex
	var all []string
	lock := fleetserver.Server{Etcd: story.StartEtcd(t).Store()}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if mu.Lock(); isAgent(r.UserAgent()) {
			all = append(all, r.Method+" "+r.URL.Path)
		}
		mu.Unlock()
		lock.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	return lockOfANode{
		settings: "url: \"" + s.URL + "\", group: masters", other: lockOf(t, s.URL, "other"), name: s.URL,
		held: "lock server .* \\(holder other since ",
		requests: func() []string {
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(all)
		},
	}
}

func leaseOfANode(t *testing.T) lockOfANode {
	t.Helper()
	api := story.StartAPIServer(t, story.StartEtcd(t))
	return lockOfANode{
		settings: "lease: " + leaseName, kubeconfig: registrytest.Text(t, api.Kubeconfig("admin")), other: leaseOf(t, api, "other"),
		name: "the Lease " + leaseName, held: "Lease " + leaseName + ": held by other since", requests: func() []string { return api.Requests(isAgent) },
	}
}

// otherGets asserts that the other node gets the lock.
func (l lockOfANode) otherGets(t *testing.T, why string) {
	t.Helper()
	_, err := l.other.Lock(t.Context())
	require.NoError(t, err, why)
	require.NoError(t, l.other.Unlock(t.Context()))
}

// lockOn returns what `lock show` says.
func lockOn(t *testing.T, n *node.Node) (s fleet.LockStatus) {
	t.Helper()
	r := n.Agent("lock", "show", "--output", "json")
	require.Zero(t, r.Code, r.Stderr)
	require.NoError(t, json.Unmarshal([]byte(r.Stdout), &s))
	return s
}

// A real node under the fleet lock, with a real lock server and, in `make soak`, a Lease of a real API server: another
// node holds it, then this one; an agent that is killed with it releases it after its next start. Without an
// apply, the agent sends no request to any.
func TestLockOnANode(t *testing.T) {
	t.Parallel()
	locks := map[string]func(*testing.T) lockOfANode{"server": serverOfANode}
	if node.Soak {
		locks["lease"] = leaseOfANode
	}
	for title, with := range locks {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			applyUnderLock(t, with(t))
		})
	}
}

func applyUnderLock(t *testing.T, l lockOfANode) {
	t.Helper()
	config := "nodeName: node1\nsettle: 0\napplyTimeout: 10m\napply:\n  lock: {" + l.settings + ", pods: all}\n"
	n, daemon, port := story.Running(t, config)
	if l.kubeconfig != "" {
		n.WriteFile("etc/kubernetes/admin.conf", l.kubeconfig)
	}
	command, program := story.SaltCommand(t, map[string]any{"image_update": map[string]any{"lock_wait": 0}}),
		story.Program(t, fmt.Sprintf("exec '%s' \"$@\" --root '%s'\n", n.AgentProgram(), n.Root))
	_, err := l.other.Lock(t.Context())
	require.NoError(t, err)
	assert.Equal(t, fleet.LockFree, lockOn(t, n).State)

	story.Rel(n, "demo/velum", "4.0.0-rev1-build1.2")
	for range 5 { // an update waits for a person
		story.Check(t, n)
	}
	assert.Empty(t, l.requests(), "of an idle agent")
	r := n.Agent("apply")
	assert.Equal(t, 4, r.Code, r.Stderr)
	assert.Regexp(t, `velum\.yaml +rebuild +held .*lock`, r.Stdout)
	assert.Contains(t, r.Stdout, "other")
	refused := "refused since .*" + l.held + ".*; the next apply asks again"
	assert.Regexp(t, "Lock: +"+refused, n.Agent("status").Stdout)
	assert.Regexp(t, "Lock: +"+refused, n.Agent("lock", "show").Stdout)
	waits, _, _ := story.SaltRun(t, "/bin/sh", command, program)
	assert.True(t, waits.Result)
	assert.Regexp(t, `^waits for the fleet lock \(4\): .*`+l.held, waits.Comment)
	story.Answers(t, port, "4.0.0-rev1-build1.1")

	restart := func(with string) {
		t.Helper()
		assert.Zero(t, daemon.Stop().Code)
		n.WriteFile(story.ConfigFile, with)
		daemon = story.StartDaemonWith(t, n, "UPDATE_POLLING_INTERVAL=0")
		story.Check(t, n)
	}
	restart(config + "  mode: auto\n")
	node.Eventually(t, "the daemon waits for the lock", story.Ready, func() error {
		if s := lockOn(t, n); s.State != fleet.LockWaiting || len(s.Holders) != 1 || s.Holders[0].ID != "other" {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	for _, show := range [][]string{{"status"}, {"lock", "show"}} {
		assert.Regexp(t, "Lock: +waiting since .*"+l.held, n.Agent(show...).Stdout)
	}
	restart(config)
	require.NoError(t, l.other.Unlock(t.Context()))
	done, _, _ := story.SaltRun(t, "/bin/sh", command, program)
	assert.True(t, done.Result, done.Comment)
	n.WaitAnswer(port, "4.0.0-rev1-build1.2")
	l.otherGets(t, "it was given back")
	story.Diagnosed(t, story.Diagnose(t, n, 0)["lock"], "ok", l.name+" granted and released the lock at ")
	sent := l.requests()
	require.NotEmpty(t, sent)
	for range 5 {
		story.Check(t, n)
	}
	assert.Equal(t, sent, l.requests(), "an idle agent sends none")

	assert.Zero(t, daemon.Stop().Code)
	killWithLock(t, n, port, l)
}

// killWithLock kills agents at each step with the lock. Until the new container runs, the node has the lock; the next start
// completes the apply, and releases it.
func killWithLock(t *testing.T, n *node.Node, port int, l lockOfANode) {
	t.Helper()
	for i, at := range []string{"apply: lock before", "apply: lock after", "apply: stop after", "report: unlock before", "report: unlock after"} {
		want := fmt.Sprintf("4.0.0-rev1-build2.%d", i+1)
		story.Rel(n, "demo/velum", want)
		node.Eventually(t, at+": all containers run", story.Ready, func() error {
			if r := n.Agent("run", "--once"); r.Code != 0 {
				return fmt.Errorf("%d: %s", r.Code, r.Stdout)
			}
			return nil
		})
		was := story.Container(t, n)
		killable := n.StartKillable([]string{"UPDATE_POLLING_INTERVAL=0", "IUA_KILL_AT=" + at}, "run")
		story.Check(t, n)
		n.Agent("apply")
		killable.Wait(story.Ready)
		switch at {
		case "apply: lock before", "report: unlock after":
			l.otherGets(t, at)
		case "report: unlock before":
			assert.NotEqual(t, was, story.Container(t, n), "it has the lock until the new container runs")
			fallthrough
		default:
			_, err := l.other.Lock(t.Context())
			e := &fleet.LockError{}
			require.ErrorAs(t, err, &e, at)
			assert.True(t, e.IsTaken(), "%s: %v", at, err)
		}
		after := story.StartDaemonWith(t, n, "UPDATE_POLLING_INTERVAL=0")
		n.WaitAnswer(port, want)
		node.Eventually(t, at, story.Ready, func() error {
			if s := story.St(t, n); s.State != status.StateCurrent {
				return fmt.Errorf("%s: %s: %s", at, s.State, s.Reason)
			}
			return nil
		})
		assert.Equal(t, fleet.LockFree, lockOn(t, n).State)
		l.otherGets(t, at)
		assert.Zero(t, after.Stop().Code)
	}
}
