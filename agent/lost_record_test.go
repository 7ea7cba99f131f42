// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/status"
)

// The record is lost while a pod manifest names what was rolled back to: the newer
// build is offered as what it is, and there is a rollback target for it.
func TestPinnedPodIsOfferedANewerBuildWithoutItsRecord(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first := running(t)
		bad := w.bad(1, "9.9")
		w.apply()
		pinned := w.Node.PodManifest("velum.yaml")
		require.Contains(t, pinned, "@"+first.Digest.String())
		w.Disk.Lose()
		w.restart()
		s := w.check()
		i := image(s, "velum.yaml", "velum")
		assert.Equal(t, "rebuild", i.Change)
		require.NotNil(t, i.Offered)
		assert.Equal(t, bad.Digest, i.Offered.Digest)
		assert.Contains(t, strings.Join(i.Notes, " "), "named by its digest, until a newer release is applied: the record does not say why")
		out, _ := w.apply()
		assert.Contains(t, out[0].Reason, "rolled back to 4.0.0-rev1-build1.1")
		w.runs("velum.yaml", "velum", first.Digest)
		assert.Equal(t, pinned, w.Node.PodManifest("velum.yaml"))
	})
}

// The tag names nothing newer: nothing is offered, and the digest stays.
func TestDigestWrittenByAPersonIsNoConversion(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first := running(t)
		text := strings.ReplaceAll(w.Node.PodManifest("velum.yaml"), "4.0.0-rev1", "4.0.0-rev1-build1.1@"+first.Digest.String())
		w.Node.PutPodManifest("velum.yaml", []byte(strings.ReplaceAll(text, "Always", "IfNotPresent")))
		s := w.check()
		assert.Equal(t, status.StateCurrent, s.State, s.Reason)
		assert.Empty(t, podOf(s, "velum.yaml").Change)
		w.idle()
		next := w.Registry.Release(velum, "4.0.0", 1, "1.2")
		assert.Equal(t, "rebuild", image(w.check(), "velum.yaml", "velum").Change)
		out, _ := w.apply()
		assert.Equal(t, status.ResultApplied, out[0].Result, out[0].Reason)
		w.runs("velum.yaml", "velum", next.Digest)
		assert.Contains(t, w.Node.PodManifest("velum.yaml"), velum+":4.0.0-rev1\n")
	})
}

// What the template itself names by digest follows nothing, and stays so in a rollback.
func TestDigestOfATemplateIsNotFollowed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.Registry.Release(velum, "4.0.0", 1, "1.1")
		db := w.Registry.Release(mariadb, "10.0", 1, "1.1")
		w.Node.PutTemplate("velum.yaml", podYAML("velum", "velum="+velum+":4.0.0", "db="+mariadb+":10.0-rev1@"+db.Digest.String()))
		w.Node.Hold(mariadb+"@"+db.Digest.String(), db.Digest)
		w.check()
		w.Registry.Release(mariadb, "10.0", 1, "1.2")
		w.bad(1, "9.9")
		out, _ := w.apply()
		assert.Contains(t, out[0].Reason, "rolled back")
		assert.Contains(t, w.Node.PodManifest("velum.yaml"), mariadb+":10.0-rev1@"+db.Digest.String())
		w.runs("velum.yaml", "db", db.Digest)
	})
}
