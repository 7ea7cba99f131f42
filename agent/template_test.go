// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/agent/plan"
)

// A template that brings a container which does not come up.
func TestFailedConversionIsRolledBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first := running(t)
		bad := w.Registry.Release(mariadb, "10.0", 1, "1.1")
		w.Node.Crash(bad.Digest, true)
		w.Node.PutTemplate("velum.yaml", podYAML("velum", "more="+mariadb+":10.0", "velum="+velum+":__TAG__"))
		w.check()
		out, s := w.apply()
		t.Log(out, s.State)
		w.runs("velum.yaml", "velum", first.Digest)
		assert.NotContains(t, w.Node.PodManifest("velum.yaml"), "more")
	})
}

func TestBadRevisionWithANewContainerIsRolledBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first := running(t)
		w.Registry.Release(mariadb, "10.0", 1, "1.1")
		w.Node.PutTemplate("velum.yaml", podYAML("velum", "velum="+velum+":__TAG__", "more="+mariadb+":10.0"))
		w.bad(2, "9.9")
		w.apply()
		w.runs("velum.yaml", "velum", first.Digest)
		assert.Len(t, w.record().Denied, 1, "nothing is known of the new container")
	})
}

// The template's pod has another name.
func TestPodIsRenamed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first := running(t)
		bad := w.Registry.Release(velum, "4.0.0", 2, "9.9")
		w.Node.Crash(bad.Digest, true)
		w.Node.PutTemplate("velum.yaml", podYAML("manager", "velum="+velum+":__TAG__"))
		w.check()
		out, s := w.apply()
		t.Log(out, s.State, s.Reason)
		w.runs("velum.yaml", "velum", first.Digest)
		assert.NotContains(t, out[0].Reason, "does not come up either")
		w.observe()
		w.idle()
	})
}

// A person deletes the file during the proof.
func TestFileDeletedDuringProof(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _ := running(t)
		w.Policy.Settle = 10 * time.Second
		w.Policy.Manage = map[string]bool{"mine.yaml": true}
		w.restart()
		w.Registry.Release(mariadb, "10.0", 1, "1.1")
		w.Node.PutPodManifest("mine.yaml", rendered("mine", "db="+mariadb+":10.0-rev1"))
		w.check()
		w.Registry.Release(mariadb, "10.0", 1, "1.2")
		w.check()
		time.AfterFunc(5*time.Second, func() { w.Node.PutPodManifest("mine.yaml", nil) })
		out, s, err := w.agent.Apply(t.Context(), agent.ApplyRequest{Which: plan.Named("mine.yaml")})
		require.NoError(t, err)
		t.Log(out, s.State, s.Reason)
		assert.Empty(t, w.Node.PodManifest("mine.yaml"))
		assert.Empty(t, w.record().Denied)
	})
}
