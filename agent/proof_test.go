// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/kubic-project/image-update-agent/agent/agenttest"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// proofOf applies a rebuild of velum whose container restarts at these times after the apply,
// and returns how long the proof took.
func proofOf(t *testing.T, settle time.Duration, restarts ...time.Duration) (status.Outcome, time.Duration) {
	t.Helper()
	w, _ := running(t)
	w.Policy.Settle = settle // the deadline is a minute more
	w.restart()
	w.Registry.Release(velum, "4.0.0", 1, "1.2")
	w.check()
	began := time.Now()
	for _, at := range restarts {
		time.AfterFunc(at, func() { w.Node.Restart("velum.yaml", "velum") })
	}
	out, _ := w.apply()
	return out[0], time.Since(began)
}

// What fails takes the minute and the settle time, and the rollback, which is proved likewise.
func TestProofTakesTheSettleTime(t *testing.T) {
	for name, c := range map[string]struct {
		settle   time.Duration
		restarts []time.Duration
		result   status.Result
		reason   string
		took     time.Duration
	}{
		"without one":             {0, nil, status.ResultApplied, "", 0},
		"what stays up":           {30 * time.Second, nil, status.ResultApplied, "", 30 * time.Second},
		"what falls once":         {30 * time.Second, []time.Duration{10*time.Second + 1}, status.ResultApplied, "", 40500 * time.Millisecond},
		"what falls at its end":   {30 * time.Second, []time.Duration{29*time.Second + 1}, status.ResultApplied, "", 59500 * time.Millisecond},
		"what falls again, again": {30 * time.Second, every(20*time.Second, 5), status.ResultFailed, "it does not stay up (it fell 4 times)", 130500 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				out, took := proofOf(t, c.settle, c.restarts...)
				assert.Equal(t, c.result, out.Result, out.Reason)
				assert.Contains(t, out.Reason, c.reason)
				assert.Equal(t, c.took, took)
			})
		})
	}
}

// An observation that fails is no failure of the pod, but it may have missed one.
func TestFailedObservationRestartsTheSettleTime(t *testing.T) {
	for name, c := range map[string]struct {
		at     []time.Duration // when an observation fails
		result status.Result
		reason string
		took   time.Duration
	}{
		"once":         {[]time.Duration{10*time.Second + 1}, status.ResultApplied, "", 40500 * time.Millisecond},
		"again, again": {every(20*time.Second, 4), status.ResultFailed, "it came up too late to be proved", 2 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w, _ := running(t)
				w.Policy.Settle = 30 * time.Second
				w.restart()
				w.Registry.Release(velum, "4.0.0", 1, "1.2")
				w.check()
				began := time.Now()
				for _, at := range c.at {
					time.AfterFunc(at, func() { w.Node.Blind(assert.AnError) })
					time.AfterFunc(at+500*time.Millisecond, func() { w.Node.Blind(nil) })
				}
				out, _ := w.apply()
				assert.Equal(t, c.result, out[0].Result, out[0].Reason)
				assert.Contains(t, out[0].Reason, c.reason)
				assert.Equal(t, c.took, time.Since(began))
			})
		})
	}
}

func every(d time.Duration, times int) []time.Duration {
	var out []time.Duration
	for n := range times {
		out = append(out, time.Duration(n+1)*d+1)
	}
	return out
}

func TestProvingIsReported(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _ := running(t)
		w.Policy.Settle = time.Second
		w.restart()
		w.Registry.Release(velum, "4.0.0", 1, "1.2")
		w.check()
		var phases []string
		w.agent.Progress = func(p status.Progress) {
			phases = append(phases, p.Phase+" "+p.Reference+" "+p.Ended)
			assert.Equal(t, "velum.yaml", p.PodManifest)
		}
		w.apply()
		assert.Equal(t, []string{"changing velum.yaml ", "proving velum ", "proving velum ", "done velum proving"}, phases)
	})
}

// What ends again and again is given up before the deadline; what needs a few attempts is not.
func TestCrashLoopFailsEarly(t *testing.T) {
	for name, c := range map[string]struct {
		heals  time.Duration // from then on it stays up
		result status.Result
		reason string
		took   time.Duration
	}{
		"for ever":        {time.Hour, status.ResultFailed, "pod velum: velum has ended 5 times: velum does not run (exit code 1); rolled back", 40 * time.Second},
		"four times":      {35 * time.Second, status.ResultApplied, "", 40 * time.Second},
		"once, at a time": {5 * time.Second, status.ResultApplied, "", 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w, _ := running(t)
				w.Policy.ApplyTimeout = 5 * time.Minute
				w.restart()
				bad := w.bad(1, "1.2")
				began := time.Now()
				time.AfterFunc(c.heals, func() { w.Node.Crash(bad.Digest, false) })
				for _, at := range every(10*time.Second, 6) { // kubelet tries again
					time.AfterFunc(at, w.Node.Sync)
				}
				out, _ := w.apply()
				assert.Equal(t, c.result, out[0].Result, out[0].Reason)
				assert.Contains(t, out[0].Reason, c.reason)
				assert.InDelta(t, c.took, time.Since(began), float64(time.Second))
			})
		})
	}
}

// The reason names the crashing container, whatever else is missing.
func TestCrashLoopNamesItsContainer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.Policy.ApplyTimeout = 5 * time.Minute
		w.Registry.Release(velum, "4.0.0", 1, "1.1")
		w.Registry.Release(mariadb, "10.0", 1, "1.1")
		w.Node.PutTemplate("velum.yaml", podYAML("velum", "velum="+velum+":__TAG__", "db="+mariadb+":__TAG__"))
		w.check()
		w.Registry.Release(velum, "4.0.0", 1, "1.2")
		bad := w.Registry.Release(mariadb, "10.0", 1, "1.2")
		w.Node.Crash(bad.Digest, true)
		w.check()
		for _, at := range every(10*time.Second, 3) {
			time.AfterFunc(at, w.Node.Sync)
		}
		time.AfterFunc(40*time.Second, func() {
			w.Node.Sync()
			w.Node.SetKubelet(false)
			w.Node.Restart("velum.yaml", "velum")
			time.AfterFunc(time.Second, func() { w.Node.SetKubelet(true); w.Node.Sync() })
		})
		out, _ := w.apply()
		assert.Contains(t, out[0].Reason, "pod velum: db has ended 5 times: db does not run (exit code 1); rolled back")
	})
}

// An init container that is tried again counts likewise, and one that ends well does not.
func TestCrashLoopOfAnInitContainer(t *testing.T) {
	for name, c := range map[string]struct {
		heals  time.Duration
		result status.Result
		reason string
	}{
		"for ever":   {time.Hour, status.ResultFailed, "setup has ended 5 times: init container setup has not ended well (exit code 1); rolled back"},
		"four times": {35 * time.Second, status.ResultApplied, ""},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld(t)
				w.Policy.ApplyTimeout = 5 * time.Minute
				w.Registry.Release(velum, "4.0.0", 1, "1.1")
				w.Registry.Release(mariadb, "10.0", 1, "1.1")
				w.Node.PutTemplate("velum.yaml", podYAML("velum", "velum="+velum+":__TAG__", "init:setup="+mariadb+":__TAG__"))
				w.check()
				bad := w.Registry.Release(mariadb, "10.0", 1, "1.2")
				w.Node.Crash(bad.Digest, true)
				w.check()
				time.AfterFunc(c.heals, func() { w.Node.Crash(bad.Digest, false) })
				for _, at := range every(10*time.Second, 6) {
					time.AfterFunc(at, w.Node.Sync)
				}
				out, _ := w.apply()
				assert.Equal(t, c.result, out[0].Result, out[0].Reason)
				assert.Contains(t, out[0].Reason, c.reason)
				assert.NotContains(t, w.Node.PodManifest("velum.yaml"), bad.Digest, "no registry was away")
			})
		})
	}
}

// Each question that is asked has an end, which says whether it was answered.
func TestEndOfEachQuestionIsReported(t *testing.T) {
	t.Parallel()
	w, _ := running(t)
	phases := map[string]int{}
	w.agent.Progress = func(p status.Progress) { phases[p.Phase+" "+p.Ended]++ }
	w.check()
	assert.NotZero(t, phases["asking "])
	assert.Equal(t, phases["asking "], phases["done asking"])
	clear(phases)
	w.Registry.Down(agenttest.ErrRefused)
	w.check()
	assert.NotZero(t, phases["asking "])
	assert.Equal(t, phases["asking "], phases["failed asking"])
}
