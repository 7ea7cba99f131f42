// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"

	"github.com/kubic-project/image-update-agent/agent/agenttest"
	"github.com/kubic-project/image-update-agent/agent/apply"
	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// inhibitor records the events while it holds.
type inhibitor struct {
	held  bool
	said  []string
	wrong error
}

func (i *inhibitor) Inhibit(_ context.Context, why string) (func(), error) {
	if i.wrong != nil {
		return nil, i.wrong
	}
	i.held, i.said = true, append(i.said, why)
	return func() { i.held = false }, nil
}

func TestShutdownIsDelayedDuringARestart(t *testing.T) {
	for kind, rev := range map[string]int{"rebuild": 1, "revision": 2} {
		run(t, kind, func(t *testing.T) {
			w, _ := running(t)
			second := w.publish(rev, "1.2")
			i := &inhibitor{}
			w.agent.Inhibitor = i
			seen := 0
			note := func(string) error { seen++; assert.True(t, i.held, "it is delayed"); return nil }
			w.Node.OnStop, w.Node.OnAside = note, note
			w.agent.Progress = func(status.Progress) { assert.False(t, i.held, "the health check may be cut short") }
			w.apply()
			assert.Equal(t, 1, seen)
			assert.False(t, i.held)
			assert.Equal(t, []string{"apply velum"}, i.said)
			w.runs("velum.yaml", "velum", second.Digest)
		})
	}
}

// sandboxes is a runtime whose sandboxes stay up, or cannot be listed, for a while.
type sandboxes struct {
	node.Pods
	until   time.Time
	wrong   error
	cleared *int
}

func (s sandboxes) SandboxReady(ctx context.Context, id string) (bool, error) {
	if time.Now().Before(s.until) {
		return s.wrong == nil, s.wrong
	}
	return s.Pods.SandboxReady(ctx, id)
}

func (s sandboxes) Clear(ctx context.Context, id string) error {
	*s.cleared++
	return s.Pods.Clear(ctx, id)
}

// The pod manifest is put back only when the pod is down and kubelet has forgotten it.
func TestPodManifestStaysAsideUntilKubeletForgetsThePod(t *testing.T) {
	for name, c := range map[string]struct {
		grace string
		until time.Duration // how long the sandbox stays up
		wrong error
		want  time.Duration
	}{
		"down at once":                  {"", 0, nil, 1500 * time.Millisecond},
		"down after a while":            {"", 3 * time.Second, nil, 4500 * time.Millisecond},
		"the runtime was away":          {"", 3 * time.Second, errors.New("cri"), 4500 * time.Millisecond},
		"not down in time":              {"", time.Hour, nil, 40 * time.Second},
		"not down in its own long time": {"  terminationGracePeriodSeconds: 60\n", time.Hour, nil, 70 * time.Second},
	} {
		run(t, name, func(t *testing.T) {
			w := newWorld(t)
			w.Policy.Forgets = apply.KubeletForgets
			w.Registry.Release(velum, "4.0.0", 1, "1.1")
			w.Node.PutTemplate("velum.yaml", []byte(string(podYAML("velum", "velum="+velum+":__TAG__"))+c.grace))
			w.check()
			second := w.publish(2, "1.2")
			began, cleared := time.Now(), 0
			w.agent.Pods = sandboxes{w.Node, began.Add(c.until), c.wrong, &cleared}
			w.applies()
			assert.Equal(t, c.want, time.Since(began))
			assert.Equal(t, 1, cleared)
			w.runs("velum.yaml", "velum", second.Digest)
		})
	}
}

// ended is a directory that does nothing for a canceled caller, as a real one.
type ended struct{ node.PodFiles }

func (e ended) PutBack(ctx context.Context) ([]string, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return e.PodFiles.PutBack(ctx)
}

func TestPodManifestIsPutBackWhenTheAgentStops(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first := running(t)
		w.Policy.Forgets = apply.KubeletForgets
		w.restart()
		w.publish(2, "1.2")
		ctx, kill := w.killable()
		w.agent.Files = ended{w.Node}
		w.Node.OnAside = func(string) error { kill(); return nil }
		w.applyWith(ctx)
		assert.Empty(t, w.Node.Aside())
		w.runs("velum.yaml", "velum", first.Digest)
	})
}

// lateKubelet is a runtime in which kubelet started a pod just before its pod manifest was set aside.
type lateKubelet struct {
	*agenttest.Node
	t        *testing.T
	aside    *time.Time    // when it was set aside; zero: not yet
	runs     time.Duration // how long it runs after that
	failing  time.Duration // how long CRI does not list containers after that
	whenBack *time.Duration
	cleared  *[]string
}

func (l lateKubelet) isWithin(d time.Duration) bool {
	return !l.aside.IsZero() && time.Since(*l.aside) < d
}

func (l lateKubelet) Containers(ctx context.Context) ([]node.Container, []digest.Digest, error) {
	if l.isWithin(l.failing) {
		return nil, nil, errors.New("cri: deadline exceeded")
	}
	all, used, err := l.Node.Containers(ctx)
	if l.isWithin(l.runs) {
		all = append(all, node.Container{
			ID: "late", Sandbox: "late", Pod: "velum-" + agenttest.NodeName, Namespace: "default", Name: "velum", Running: true,
		})
	}
	return all, used, err
}

func (l lateKubelet) SandboxReady(ctx context.Context, id string) (bool, error) {
	if id == "late" {
		return l.isWithin(l.runs), nil
	}
	return l.Node.SandboxReady(ctx, id)
}

func (l lateKubelet) Clear(ctx context.Context, id string) error {
	if id == "late" {
		*l.cleared = append(*l.cleared, id)
	}
	return l.Node.Clear(ctx, id)
}

func (l lateKubelet) Write(ctx context.Context, was node.PodFile, data []byte) error {
	*l.whenBack = time.Since(*l.aside)
	return l.Node.Write(ctx, was, data)
}

// The next pod manifest is written when the pod that kubelet started meanwhile is down: a draining pod would get the
// health check. A runtime that does not list containers is asked again.
func TestPodThatKubeletJustStartedIsAwaited(t *testing.T) {
	const grace, slack, forgets = 30 * time.Second, 10 * time.Second, 1500 * time.Millisecond
	for name, c := range map[string]struct {
		runs, failing, back time.Duration
		cleared             []string
	}{
		"CRI answers":           {runs: 25 * time.Second, back: 25*time.Second + forgets, cleared: []string{"late"}},
		"CRI fails once":        {25 * time.Second, forgets + 1, 25*time.Second + forgets, []string{"late"}},
		"CRI fails for a while": {time.Minute, 20 * time.Second, grace + slack, []string{"late"}},
		"CRI fails to the end":  {runs: 35 * time.Second, failing: grace + slack + time.Second, back: grace + slack},
	} {
		run(t, name, func(t *testing.T) {
			w, _ := running(t)
			w.Policy.Forgets = forgets
			w.restart()
			second := w.publish(2, "1.2")
			var (
				aside   time.Time
				back    time.Duration
				cleared []string
			)
			late := lateKubelet{w.Node, t, &aside, c.runs, c.failing, &back, &cleared}
			w.agent.Pods, w.agent.Files = late, late
			w.Node.OnAside = func(string) error { aside = time.Now(); return nil }
			w.applies()
			assert.Equal(t, c.back, back)
			assert.Equal(t, c.cleared, cleared)
			w.runs("velum.yaml", "velum", second.Digest)
		})
	}
}
