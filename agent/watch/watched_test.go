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
	events []event
	list   func(at time.Duration) ([]node.Container, error) // nil: none
	began  time.Time
	listed int
}

// event is sent a time after the start.
type event struct {
	at    time.Duration
	id    string
	ended bool
}

func (r *runtime) Containers(context.Context) ([]node.Container, []digest.Digest, error) {
	r.listed++
	if r.list == nil {
		return nil, nil, nil
	}
	containers, err := r.list(time.Since(r.began))
	return containers, nil, err
}

func (r *runtime) Watch(ctx context.Context, handle func(watch.RuntimeEvent)) {
	for _, e := range r.events {
		time.Sleep(e.at - time.Since(r.began)) //nolint:forbidigo // the bubble's time
		handle(watch.RuntimeEvent{ContainerID: e.id, Ended: e.ended})
	}
	<-ctx.Done()
}

// observations returns when events cause observations, within an hour.
func (r *runtime) observations(t *testing.T, w *watch.Watched) (at []time.Duration) {
	t.Helper()
	r.began = time.Now()
	stop := w.WatchEvents(t.Context(), r, r, func() { at = append(at, time.Since(r.began)) })
	time.Sleep(time.Hour) //nolint:forbidigo // the bubble's time
	stop()
	return at
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
func watched(t *testing.T) *watch.Watched {
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
	w.Observed(inv.Containers, time.Now())
	w.Update(plan.Plan{Names: []string{"velum"}, Pods: []plan.PodPlan{{Images: []plan.ImagePlan{{Expected: &e}}}}}, inv)
	return w
}

// An event causes an observation if it may be about a container of a static pod, as soon as CRI shows it.
func TestEvents(t *testing.T) {
	t.Parallel()
	const end, start, second = true, false, time.Second
	var many []event
	for n := range 1025 {
		many = append(many, event{0, fmt.Sprint(n), start})
	}
	type list = func(time.Duration) ([]node.Container, error)
	runs := func(from, to time.Duration, id string) list {
		return func(at time.Duration) ([]node.Container, error) {
			return []node.Container{{ID: id, Running: from <= at && at < to}}, nil
		}
	}
	absent := func(from time.Duration, id string) list {
		return func(at time.Duration) (all []node.Container, _ error) {
			if at < from {
				all = append(all, node.Container{ID: id, Running: true})
			}
			return all, nil
		}
	}
	both := func(one, two list) list {
		return func(at time.Duration) ([]node.Container, error) {
			a, _ := one(at)
			b, _ := two(at)
			return append(a, b...), nil
		}
	}
	for name, c := range map[string]struct {
		events []event
		list   list
		want   []time.Duration
		listed int
	}{
		"nothing happens":                {nil, nil, nil, 0},
		"one ends":                       {[]event{{0, "ours", end}}, runs(0, 0, "ours"), []time.Duration{second}, 1},
		"one starts":                     {[]event{{0, "new", start}}, runs(0, time.Hour, "new"), []time.Duration{second}, 1},
		"events of a second":             {[]event{{0, "ours", end}, {0, "new", start}, {second / 2, "new", end}}, runs(0, 0, "new"), []time.Duration{second}, 1},
		"events were missed":             {[]event{{}}, nil, []time.Duration{second}, 1},
		"more events than it remembers":  {many, nil, []time.Duration{second}, 1},
		"one of another pod starts":      {[]event{{0, "other", start}}, runs(0, time.Hour, "ours"), nil, 1},
		"one of another pod ends":        {[]event{{0, "other", end}}, runs(0, time.Hour, "ours"), nil, 1},
		"an init container":              {[]event{{0, "init", start}, {0, "init", end}}, runs(0, 0, "init"), []time.Duration{second}, 1},
		"one ends, its pod is removed":   {[]event{{0, "ours", end}}, nil, []time.Duration{second}, 1},
		"the end is shown late":          {[]event{{0, "", start}, {second - 1, "ours", end}}, runs(0, 1001*time.Millisecond, "ours"), []time.Duration{second, 2 * second}, 2},
		"the end is shown later":         {[]event{{0, "ours", end}}, runs(0, 3*second, "ours"), []time.Duration{4 * second}, 3},
		"the end is never shown":         {[]event{{0, "ours", end}}, runs(0, 2*time.Hour, "ours"), nil, 65},
		"the pod is removed later":       {[]event{{0, "ours", end}}, absent(3*second, "ours"), []time.Duration{4 * second}, 3},
		"the start is shown late":        {[]event{{0, "new", start}}, runs(1001*time.Millisecond, time.Hour, "new"), []time.Duration{2 * second}, 2},
		"a restarted one ends at once":   {[]event{{0, "new", start}, {second - 1, "new", end}}, runs(0, 1001*time.Millisecond, "new"), []time.Duration{2 * second}, 2},
		"one is restarted and ends":      {[]event{{0, "ours", end}, {0, "new", start}, {second - 1, "new", end}}, runs(0, 1001*time.Millisecond, "new"), []time.Duration{second, 2 * second}, 2},
		"a new one goes with its pod":    {[]event{{0, "new", start}, {9 * second, "new", end}}, absent(9*second, "new"), []time.Duration{second, 10 * second}, 2},
		"two end, one is shown later":    {[]event{{0, "ours", end}, {0, "db", end}}, both(runs(0, 0, "ours"), runs(0, 3*second, "db")), []time.Duration{second, 4 * second}, 3},
		"missed events after an end":     {[]event{{0, "ours", end}, {1500 * time.Millisecond, "", start}}, runs(0, 3*second, "ours"), []time.Duration{2500 * time.Millisecond, 3500 * time.Millisecond}, 3},
		"another's end while one is due": {[]event{{0, "ours", end}, {1500 * time.Millisecond, "other", end}}, runs(0, 3*second, "ours"), []time.Duration{3500 * time.Millisecond}, 3},
		"one ends while a list is taken": {[]event{{0, "new", start}, {second + 1, "new", end}}, func(time.Duration) ([]node.Container, error) {
			time.Sleep(second / 2) //nolint:forbidigo // the bubble's time
			return []node.Container{{ID: "new"}}, nil
		}, []time.Duration{3 * second}, 2},
		"one goes while a list is taken": {[]event{{0, "new", start}, {second + 1, "ours", end}}, func(time.Duration) ([]node.Container, error) {
			time.Sleep(second / 2) //nolint:forbidigo // the bubble's time
			return nil, nil
		}, []time.Duration{3 * second / 2}, 1},
		"the runtime is away": {[]event{{0, "ours", end}}, func(at time.Duration) ([]node.Container, error) {
			if at < 3*second {
				return nil, errors.New("away")
			}
			return nil, nil
		}, []time.Duration{second, 4 * second}, 3},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := &runtime{events: c.events, list: c.list}
			assert.Equal(t, c.want, r.observations(t, watched(t)), name)
			assert.Equal(t, c.listed, r.listed, name)
		})
	}
	(&watch.Watched{}).WatchEvents(t.Context(), nil, nil, nil)()
}

// While a cycle lists the containers, an older list of an event may arrive: the event is looked at again.
func TestListThatIsOlderThanTheCycles(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := watched(t)
		w.SetBusy(true)
		s := status.Status{State: status.StateCurrent, Images: []status.ImageStatus{{PodManifest: file, Container: "velum"}}}
		r := &runtime{events: []event{{0, "ours", true}}}
		r.list = func(at time.Duration) ([]node.Container, error) {
			if at == time.Second {
				w.Observed([]node.Container{velum(func(*node.Container) {})}, time.Now())
			} else {
				assert.Equal(t, s, w.Correct(s))
			}
			return []node.Container{velum(ended)}, nil
		}
		assert.Equal(t, []time.Duration{2 * time.Second}, r.observations(t, w))
		w.Observed([]node.Container{velum(func(*node.Container) {})}, r.began)
		assert.Equal(t, status.StateFailed, w.Correct(s).State, "an event's list ended after the cycle's had begun")
		w.Observed(nil, time.Now())
		assert.Equal(t, s, w.Correct(s))
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
		w := watched(t)
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
		w.Observed(nil, time.Now())
		assert.Equal(t, was, w.Correct(was), "%s: the next cycle observes by itself", name)
	}
}

// A container that the agent stops has not failed.
func TestRestartIsNotAFailure(t *testing.T) {
	t.Parallel()
	w := watched(t)
	end := w.Restart()
	w.Note([]node.Container{velum(ended)}, now)
	s := status.Status{State: status.StateStaged, Images: []status.ImageStatus{{PodManifest: file, Container: "velum"}}}
	assert.Equal(t, s, w.Correct(s))
	end()
	w.Note([]node.Container{velum(ended)}, now)
	assert.Equal(t, status.StateFailed, w.Correct(s).State)
}
