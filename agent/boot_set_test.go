// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"

	"github.com/kubic-project/image-update-agent/agent/release"
)

// systemSet is a node with two pods, and a set of the next versions of both, which templates of a new system follow.
func systemSet(t *testing.T) (w *world, one, two release.Release) {
	t.Helper()
	w, _ = catalogWorld(t)
	w.promote(w.Registry.Release(mariadb, "10.0", 1, "1.1"))
	w.Node.PutTemplate("db.yaml", podYAML("db", "db="+mariadb+":10.0"))
	w.check()
	one, two = w.Registry.Release(velum, "4.0.1", 1, "1.1"), w.Registry.Release(mariadb, "10.1", 1, "1.1")
	w.promote(one, inSetOf("caasp-4.5.2", one, two))
	w.promote(two, inSetOf("caasp-4.5.2", one, two))
	w.check()
	return w, one, two
}

func (w *world) bringsVelum() { w.brings("4.0.1") }

func (w *world) bringsDB() { w.Node.PutTemplate("db.yaml", podYAML("db", "db="+mariadb+":10.1")) }

// TestBootStartsAllOfASetOrNone: what a boot starts of a set starts with the rest of it, or not at all.
func TestBootStartsAllOfASetOrNone(t *testing.T) {
	t.Parallel()
	for name, brings := range map[string][]func(*world){
		"one first":   {(*world).bringsVelum, (*world).bringsDB},
		"other first": {(*world).bringsDB, (*world).bringsVelum},
		"both":        {func(w *world) { w.bringsVelum(); w.bringsDB() }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w, one, two := systemSet(t)
				oneBefore, _ := w.Node.Container("velum.yaml", "velum")
				twoBefore, _ := w.Node.Container("db.yaml", "db")
				for n, bring := range brings {
					bring(w)
					steps := w.reboot()
					if n == len(brings)-1 {
						break
					}
					becomes(t, steps, "", "set: caasp-4.5.2: ")
					w.runs("velum.yaml", "velum", oneBefore.Digests[0])
					w.runs("db.yaml", "db", twoBefore.Digests[0])
					w.check()
				}
				w.runs("velum.yaml", "velum", one.Digest)
				w.runs("db.yaml", "db", two.Digest)
				w.check()
				for _, s := range w.reboot() {
					assert.Empty(t, s.Do, s.Reason)
				}
			})
		})
	}
}
