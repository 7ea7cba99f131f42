// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// A pod that only looks broken before its update is rolled back.
func TestPodNotBrokenBeforeIsRolledBack(t *testing.T) {
	for name, before := range map[string]func(w *world){
		"it was restarted just now": func(w *world) { w.Node.Restart("velum.yaml", "velum") },
		"kubelet has forgotten its init container": func(w *world) {
			w.Node.RemoveContainer("velum.yaml", "setup")
		},
		"its template has one container more": func(w *world) {
			w.Node.PutTemplate("velum.yaml", podYAML("velum", "velum="+velum+":4.0.0", "init:setup="+mariadb+":10.0", "more="+mariadb+":10.0"))
		},
	} {
		for mode, auto := range map[string]bool{"by a person": false, "by itself": true} {
			t.Run(name+", "+mode, func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					w := newWorld(t)
					first := w.Registry.Release(velum, "4.0.0", 1, "1.1")
					w.Registry.Release(mariadb, "10.0", 1, "1.1")
					w.Node.PutTemplate("velum.yaml", podYAML("velum", "velum="+velum+":4.0.0", "init:setup="+mariadb+":10.0"))
					w.check()
					w.Policy.Auto = auto
					w.restart()
					before(w)
					bad := w.bad(2, "2.1")
					w.apply()
					assert.Contains(t, w.record().Denied, denied(bad))
					w.runs("velum.yaml", "velum", first.Digest)
				})
			})
		}
	}
}

// The record was lost, and mode auto applies in the first cycle: no release is known to have run well.
func TestPodWithoutARollbackTargetStays(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _ := running(t)
		bad := w.Registry.Release(velum, "4.0.0", 2, "2.1")
		w.Node.Crash(bad.Digest, true)
		w.Disk.Lose()
		w.Policy.Auto = true
		w.restart()
		s := w.check()
		assert.Contains(t, s.Reason, "it stays as it is: no other release is known to have run well")
		w.runs("velum.yaml", "velum", bad.Digest)
		assert.Empty(t, w.record().Overrides)
	})
}
