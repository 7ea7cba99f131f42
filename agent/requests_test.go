// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/agenttest"
	"github.com/kubic-project/image-update-agent/agent/source"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// twenty is a node with 20 pods of 20 repositories, all current.
func twenty(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	for n := range 20 {
		repository := fmt.Sprintf("registry.suse.com/caasp/v4/app%02d", n)
		w.Registry.Release(repository, "1.0.0", 1, "1.1")
		w.Node.PutTemplate(fmt.Sprintf("app%02d.yaml", n), podYAML(fmt.Sprintf("app%02d", n), "app="+repository+":1.0.0"))
	}
	return w
}

func TestRequests(t *testing.T) {
	t.Parallel()
	w := twenty(t)
	w.poll()
	// Per image: the short tag, its twin, the long tag; one list; one description.
	assert.Equal(t, agenttest.Counts{Heads: 60, Lists: 20, Describes: 20}, w.Registry.Counts(), "the first poll")
	w.poll()
	assert.Equal(t, agenttest.Counts{Heads: 20}, w.Registry.Counts(), "a steady poll: one HEAD per followed tag")
	w.restart()
	w.poll()
	assert.Equal(t, agenttest.Counts{Heads: 20}, w.Registry.Counts(), "also after a restart")
	w.observe()
	assert.Zero(t, w.Registry.Counts(), "looking asks nothing")
	w.Clock.Add(24 * time.Hour)
	w.poll()
	assert.Equal(t, agenttest.Counts{Heads: 20, Lists: 20}, w.Registry.Counts(), "the daily lists")
	w.check()
	assert.Equal(t, agenttest.Counts{Heads: 20, Lists: 20}, w.Registry.Counts(), "a person asks")
	w.Registry.Release("registry.suse.com/caasp/v4/app07", "1.0.0", 1, "1.2")
	w.poll()
	assert.Equal(t, agenttest.Counts{Heads: 21, Lists: 1, Describes: 1}, w.Registry.Counts(), "one rebuild: its long tag, its description")
	w.poll()
	assert.Equal(t, agenttest.Counts{Heads: 20}, w.Registry.Counts(), "an offer that waits costs nothing more")
}

func TestAllQuestionsOfARepositoryAreAnsweredFromOneList(t *testing.T) {
	t.Parallel()
	w, _ := running(t)
	w.Registry.Release(velum, "4.0.0", 2, "1.1")
	// The placeholder alone would do with yesterday's list, the short tag needs today's.
	w.Node.PutTemplate("two.yaml", podYAML("two", "a="+velum+":__TAG__", "b="+velum+":4.0.0"))

	w.poll()

	assert.Equal(t, string(rendered("two", "a="+velum+":4.0.0-rev2", "b="+velum+":4.0.0-rev2")), w.Node.PodManifest("two.yaml"))
	assert.Contains(t, w.Node.WaitingFile("velum.yaml"), "4.0.0-rev2")
	assert.Equal(t, agenttest.Counts{Heads: 4, Lists: 1, Describes: 1}, w.Registry.Counts())
}

func TestListsAreAskedForAgainAfterAWrongClock(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Clock.Add(10 * 365 * 24 * time.Hour)
	w.Registry.Release(velum, "4.0.0", 1, "1.1")
	w.Node.PutTemplate("velum.yaml", podYAML("velum", "velum="+velum+":4.0.0"))
	w.poll()
	w.Clock.Add(-10 * 365 * 24 * time.Hour)
	want := w.Registry.Release(velum, "4.0.0", 2, "1.1")
	s := w.poll()
	assert.Equal(t, want.Digest, image(s, "velum.yaml", "velum").Offered.Digest, s.Reason)
}

// An unsaved record is reported: holds, approvals and waits would be lost at the next start.
func TestUnsavedRecordIsAnAlarm(t *testing.T) {
	t.Parallel()
	w, _ := running(t)
	w.Disk.Fail(errors.New("no space left on device"))
	s, err := w.agent.Cycle(t.Context(), source.PollDue)
	require.Error(t, err)
	assert.Equal(t, status.StateFailed, s.State)
	assert.Contains(t, s.Reason, "record: no space left on device")
	w.Disk.Fail(nil)
	assert.Equal(t, status.StateCurrent, w.observe().State)
}

// A request does not wait for a pull, and a pod whose image is not pulled is not written.
func TestNewPodIsNotWrittenBeforeItsDeferredImage(t *testing.T) {
	t.Parallel()
	w, first := running(t)
	w.Node.Lose(first.Digest)
	w.Node.PutTemplate("new.yaml", podYAML("new", "velum="+velum+":4.0.0-rev1"))
	_, _, err := w.agent.Unhold(t.Context(), nil, true)
	require.NoError(t, err)
	assert.Empty(t, w.Node.PodManifest("new.yaml"))
	w.observe()
	assert.NotEmpty(t, w.Node.PodManifest("new.yaml"))
}
