// SPDX-License-Identifier: Apache-2.0

package watch_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/follow"
	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/agent/watch"
)

const (
	file = "velum.yaml"
	one  = digest.Digest("sha256:1")
	two  = digest.Digest("sha256:2")
)

var now = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// runtime has containers of static pods, and events that a test sends.
type runtime struct {
	containers []node.Container
	err        error
	events     []watch.RuntimeEvent
	later      func(handle func(watch.RuntimeEvent))
	listed     int
}

func (r *runtime) Containers(context.Context) ([]node.Container, []digest.Digest, error) {
	r.listed++
	return r.containers, nil, r.err
}

func (r *runtime) Watch(ctx context.Context, handle func(watch.RuntimeEvent)) {
	for _, e := range r.events {
		handle(e)
	}
	if r.later != nil {
		r.later(handle)
	}
	<-ctx.Done()
}

// velum returns the followed container, as CRI shows it.
func velum(edit func(*node.Container)) node.Container {
	c := node.Container{
		ID: "ours", Pod: "velum-n", Namespace: "default", Name: "velum", Running: true, StartedAt: now, Digests: []digest.Digest{one},
	}
	edit(&c)
	return c
}

func ended(c *node.Container) { c.Running, c.FinishedAt, c.ExitCode = false, now.Add(time.Second), 1 }

// watched returns a Watched for a node whose velum must run, and does.
func watched(t *testing.T, down *status.Down) *watch.Watched {
	t.Helper()
	inv := node.Inventory{
		NodeName:     "n",
		Containers:   []node.Container{velum(func(*node.Container) {})},
		PodManifests: []node.PodFile{{Name: file, Data: []byte("apiVersion: v1\nkind: Pod\nmetadata: {name: velum}\nspec:\n  containers:\n  - {name: velum, image: \"r.io/velum:1\"}\n")}},
	}
	pods := follow.ReadPods(inv, record.Record{}, policy.Policy{})
	require.Len(t, pods, 1)
	e, must := pods[0].Expects(pods[0].Wants[0], inv)
	require.True(t, must)
	w := &watch.Watched{}
	w.Update(plan.Plan{Names: []string{"velum"}, Pods: []plan.PodPlan{{Images: []plan.ImagePlan{{Expected: &e, Down: down}}}}}, inv)
	return w
}

// An event causes an observation if it may be about a followed container or a new pod.
func TestEvents(t *testing.T) {
	t.Parallel()
	started := func(id string) watch.RuntimeEvent { return watch.RuntimeEvent{ContainerID: id} }
	end := func(id string) watch.RuntimeEvent { return watch.RuntimeEvent{ContainerID: id, Ended: true} }
	var many []watch.RuntimeEvent
	for n := range 1025 {
		many = append(many, started(fmt.Sprint(n)))
	}
	for name, c := range map[string]struct {
		events       []watch.RuntimeEvent
		set          func(w *watch.Watched, r *runtime)
		want, listed int
	}{
		"a followed one ends":                   {[]watch.RuntimeEvent{end("ours")}, nil, 1, 0},
		"a followed one starts":                 {[]watch.RuntimeEvent{started("ours")}, nil, 1, 0},
		"events of a second":                    {[]watch.RuntimeEvent{end("ours"), started("ours"), end("ours")}, nil, 1, 0},
		"events were missed":                    {[]watch.RuntimeEvent{{}}, nil, 1, 0},
		"another one ends":                      {[]watch.RuntimeEvent{end("other")}, nil, 0, 0},
		"another one starts":                    {[]watch.RuntimeEvent{started("other")}, nil, 0, 1},
		"more starts than it remembers":         {many, nil, 1, 0},
		"another one ends during a cycle":       {[]watch.RuntimeEvent{end("other")}, func(w *watch.Watched, _ *runtime) { w.SetBusy(true) }, 1, 0},
		"one of a new static pod starts":        {[]watch.RuntimeEvent{started("new")}, func(_ *watch.Watched, r *runtime) { r.containers = []node.Container{{ID: "new"}} }, 1, 1},
		"one starts that the runtime hides":     {[]watch.RuntimeEvent{started("new")}, func(_ *watch.Watched, r *runtime) { r.err = errors.New("away") }, 1, 1},
		"nothing happens":                       {nil, nil, 0, 0},
		"one starts while a followed is ended":  {[]watch.RuntimeEvent{started("other")}, func(w *watch.Watched, _ *runtime) { w.Note([]node.Container{velum(ended)}, now) }, 1, 0},
		"one starts while a followed is absent": {[]watch.RuntimeEvent{started("other")}, func(w *watch.Watched, _ *runtime) { w.Note(nil, now) }, 1, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			w, r := watched(t, nil), &runtime{events: c.events}
			if c.set != nil {
				c.set(w, r)
			}
			began, observed := time.Now(), 0
			var last time.Duration
			stop := w.WatchEvents(t.Context(), r, r, func(context.Context) { observed++; last = time.Since(began) })
			time.Sleep(time.Minute) //nolint:forbidigo // the bubble's time
			stop()
			assert.Equal(t, c.want, observed, name)
			assert.Equal(t, c.listed, r.listed, name)
			if c.want > 0 {
				assert.Equal(t, time.Second, last, name)
			}
		})
	}
	(&watch.Watched{}).WatchEvents(t.Context(), nil, nil, nil)()
}

// CRI lists an ended container as running for a moment: an end just before an observation causes another one.
func TestEndJustBeforeAnObservation(t *testing.T) {
	t.Parallel()
	for before, want := range map[time.Duration][]time.Duration{
		10 * time.Millisecond: {time.Second, 2 * time.Second}, 800 * time.Millisecond: {time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			w, r := watched(t, nil), &runtime{events: []watch.RuntimeEvent{{}}}
			r.later = func(handle func(watch.RuntimeEvent)) {
				time.Sleep(time.Second - before) //nolint:forbidigo // the bubble's time
				handle(watch.RuntimeEvent{ContainerID: "ours", Ended: true})
			}
			began, observed := time.Now(), []time.Duration(nil)
			stop := w.WatchEvents(t.Context(), r, r, func(context.Context) { observed = append(observed, time.Since(began)) })
			time.Sleep(time.Minute) //nolint:forbidigo // the bubble's time
			stop()
			assert.Equal(t, want, observed)
		})
	}
}

// After a cycle that found a followed container down, each start causes an observation.
func TestStartWhileAContainerIsDown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, r := watched(t, &status.Down{}), &runtime{events: []watch.RuntimeEvent{{ContainerID: "other"}}}
		observed := 0
		stop := w.WatchEvents(t.Context(), r, r, func(context.Context) { observed++ })
		time.Sleep(time.Minute) //nolint:forbidigo // the bubble's time
		stop()
		assert.Equal(t, 1, observed)
	})
}

// The status shows containers that ended or started after the observation of a cycle.
func TestCorrect(t *testing.T) {
	t.Parallel()
	approval := status.Reason{Kind: status.KindApproval, PodManifest: "db.yaml", Text: "db.yaml"}
	held := status.Reason{Kind: status.KindHold, Text: "hold"}
	before := func(state status.State) status.Status {
		return status.Status{
			State: state, Reasons: []status.Reason{held, approval},
			Images: []status.ImageStatus{{
				PodManifest: file, Container: "velum", Image: "r.io/velum",
				Running: &status.Named{Tag: "1-build1", Digest: one}, Offered: &status.Named{Tag: "1-build2", Digest: two},
			}},
		}
	}
	failed := status.Reason{
		Kind: status.KindDown, PodManifest: file, Container: "velum", Image: "r.io/velum", Since: now.Add(time.Second),
		Text: "velum.yaml: velum is not running (exit code 1)",
	}
	for name, c := range map[string]struct {
		seen    []node.Container
		state   status.State
		running *status.Named
		want    status.State
		reasons []status.Reason
	}{
		"it runs":                  {[]node.Container{velum(func(*node.Container) {})}, status.StateHeld, &status.Named{Tag: "1-build1", Digest: one}, status.StateHeld, []status.Reason{held, approval}},
		"it runs what was offered": {[]node.Container{velum(func(c *node.Container) { c.Digests = []digest.Digest{two} })}, status.StateHeld, &status.Named{Tag: "1-build2", Digest: two}, status.StateHeld, []status.Reason{held, approval}},
		"it runs another one":      {[]node.Container{velum(func(c *node.Container) { c.Digests = []digest.Digest{"sha256:3"} })}, status.StateHeld, &status.Named{Digest: "sha256:3"}, status.StateHeld, []status.Reason{held, approval}},
		"it has ended":             {[]node.Container{velum(ended)}, status.StateHeld, nil, status.StateFailed, []status.Reason{failed, approval}},
		"it has ended, as another": {[]node.Container{velum(ended)}, status.StateFailed, nil, status.StateFailed, []status.Reason{held, failed, approval}},
		"it ends in an apply":      {[]node.Container{velum(ended)}, status.StateApplying, &status.Named{Tag: "1-build1", Digest: one}, status.StateApplying, []status.Reason{held, approval}},
		"it is not there yet":      {nil, status.StateHeld, &status.Named{Tag: "1-build1", Digest: one}, status.StateHeld, []status.Reason{held, approval}},
	} {
		w := watched(t, nil)
		w.Note(c.seen, now)
		was := before(c.state)
		s := w.Correct(was)
		assert.Equal(t, c.want, s.State, name)
		assert.Equal(t, c.running, s.Images[0].Running, name)
		assert.Equal(t, c.reasons, s.Reasons, name)
		assert.Equal(t, before(c.state), was, "%s: callers share the status of the cycle", name)
		if s.State == status.StateFailed {
			assert.NotNil(t, s.Images[0].Down, name)
			assert.Len(t, s.Failures, 1, name)
		}
		w.Forget()
		assert.Equal(t, was, w.Correct(was), "%s: the next cycle observes by itself", name)
	}
}

// A container that the agent stops has not failed.
func TestRestartIsNotAFailure(t *testing.T) {
	t.Parallel()
	w := watched(t, nil)
	end := w.Restart()
	w.Note([]node.Container{velum(ended)}, now)
	s := status.Status{State: status.StateStaged, Images: []status.ImageStatus{{PodManifest: file, Container: "velum"}}}
	assert.Equal(t, s, w.Correct(s))
	end()
	w.Note([]node.Container{velum(ended)}, now)
	assert.Equal(t, status.StateFailed, w.Correct(s).State)
	w.SetBusy(true)
	assert.True(t, w.IsBusy())
}
