// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/kubic-project/image-update-agent/agent"
)

// What looks like a pod that was broken before its update and was not: it is rolled back all the same.
func TestPodThatWasNotBrokenBeforeIsRolledBack(t *testing.T) {
	for name, before := range map[string]func(w *world){
		"it was restarted just now": func(w *world) { w.Node.Restart("velum.yaml", "velum") },
		"kubelet has forgotten its init container": func(w *world) {
			w.Node.RemoveContainer("velum.yaml", "setup")
		},
		"its template has one container more": func(w *world) {
			w.Node.PutTemplate("velum.yaml", podYAML("velum", "velum="+velum+":4.0.0", "init:setup="+mariadb+":10.0", "more="+mariadb+":10.0"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld(t)
				first := w.Registry.Release(velum, "4.0.0", 1, "1.1")
				w.Registry.Release(mariadb, "10.0", 1, "1.1")
				w.Node.PutTemplate("velum.yaml", podYAML("velum", "velum="+velum+":4.0.0", "init:setup="+mariadb+":10.0"))
				w.check()
				before(w)
				w.bad(2, "2.1")
				out, _ := w.apply()
				assert.Equal(t, agent.ResultFailed, out[0].Result)
				w.runs("velum.yaml", "velum", first.Digest)
			})
		})
	}
}
