// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/kubic-project/image-update-agent/agent/agenttest"
	"github.com/kubic-project/image-update-agent/agent/status"
)

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
