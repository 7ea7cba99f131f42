// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/e2e/story"
	"github.com/kubic-project/image-update-agent/manifests"
)

// onlyForTests asserts that the installed agent has no points.
func (r *pointsRig) onlyForTests() {
	r.t.Helper()
	const variable = "IUA_KILL"
	program, err := os.ReadFile(r.AgentProgram())
	require.NoError(r.t, err)
	assert.False(r.t, bytes.Contains(program, []byte(variable)))
	program, err = os.ReadFile(r.KillableProgram())
	require.NoError(r.t, err)
	assert.True(r.t, bytes.Contains(program, []byte(variable)))
}

// offeredAgain asserts that nothing was done, and that the release waits for approval.
func (r *pointsRig) offeredAgain(p pointsRelease, s status.Status) {
	r.t.Helper()
	i := story.ImageOf(r.t, s, "velum.yaml")
	require.NotNil(r.t, i.Offered, s.Reason)
	assert.Equal(r.t, p.digest, i.Offered.Digest.String())
	assert.True(r.t, i.Staged)
	assert.NotEmpty(r.t, i.Change)
	assert.Contains(r.t, []status.State{status.StateStaged, status.StateFailed}, s.State, s.Reason) // the latest
	assert.Equal(r.t, p.manifest, r.ReadFile(story.VelumYAML))
}

// verified asserts that the pod runs the release after a health check.
func (r *pointsRig) verified(p pointsRelease, s status.Status) {
	r.t.Helper()
	i := story.ImageOf(r.t, s, "velum.yaml")
	assert.Equal(r.t, p.digest, digestOf(i.Running), "running; %s", s.Reason)
	assert.Equal(r.t, p.digest, digestOf(i.LastKnownGood), "last known good; %s", s.Reason)
	story.IsCurrent(r.t, s)
	assert.Empty(r.t, i.Change)
	assert.Equal(r.t, r.s.pickedUp, i.PickedUp)
	assert.NoFileExists(r.t, r.Path(story.WaitingDir+"velum.yaml"))
	record := r.readRecord()
	assert.Empty(r.t, record.Denied)
	assert.Empty(r.t, record.Failed)
	override, slow := record.Overrides["velum.yaml"]
	for _, at := range override.Images { // kubelet was slow to start it, and the agent pinned it
		assert.Equal(r.t, p.digest, at.Digest.String())
	}
	assert.False(r.t, override.Pending)
	r.runs, r.name, r.pinned = p.digest, p.long, slow
}

// rolledBack asserts that the pod runs the previous release, pinned to its digest, that the release is not offered any
// more, and that the reason is reported.
func (r *pointsRig) rolledBack(p pointsRelease, s status.Status) {
	r.t.Helper()
	i := story.ImageOf(r.t, s, "velum.yaml")
	assert.Equal(r.t, r.runs, digestOf(i.Running), "running; %s", s.Reason)
	assert.Equal(r.t, r.runs, digestOf(i.LastKnownGood), "last known good; %s", s.Reason)
	assert.Empty(r.t, i.Change)
	assert.Equal(r.t, status.StateFailed, s.State, s.Reason)
	assert.Contains(r.t, s.Reason, "rolled back")
	assert.Contains(r.t, r.ReadFile(story.GrainFile), "image_update_reason: ")
	assert.Contains(r.t, r.ReadFile(story.VelumYAML), ":"+r.name+"@"+r.runs)
	assert.NoFileExists(r.t, r.Path(story.WaitingDir+"velum.yaml"))
	record := r.readRecord()
	assert.Equal(r.t, p.long, record.Denied[r.Registry.Ref("demo/velum@"+p.digest)].Name)
	override := record.Overrides["velum.yaml"]
	assert.False(r.t, override.Pending)
	assert.Equal(r.t, override.Data, r.ReadFile(story.VelumYAML))
	r.pinned = true
}

// whole asserts the invariants after any end of an apply.
func (r *pointsRig) whole(s status.Status) {
	r.t.Helper()
	r.onlyVelum(r.Manifests)
	r.WaitAnswer(r.port, r.name)
	i := story.ImageOf(r.t, s, "velum.yaml")
	assert.Equal(r.t, r.runs, digestOf(i.Running))
	want := []string{r.runs, digestOf(i.LastKnownGood)}
	if i.Staged && i.Offered != nil {
		want = append(want, digestOf(i.Offered))
	}
	assert.Subset(r.t, story.Pins(r.t, r.Node), want, "pins")
	assert.Empty(r.t, r.readRecord().Approved, "half-way")
	assert.Empty(r.t, stageLeases(r.t, r), "leases")
}

// onlyVelum asserts that a directory has one complete pod manifest and no other file, including dot-names.
func (r *pointsRig) onlyVelum(dir string) {
	r.t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(r.t, err)
	require.Len(r.t, entries, 1, "%v", entries)
	require.Equal(r.t, "velum.yaml", entries[0].Name())
	data, err := os.ReadFile(filepath.Join(dir, "velum.yaml"))
	require.NoError(r.t, err)
	pod, err := manifests.Parse(data)
	require.NoError(r.t, err, "%s", data)
	assert.Equal(r.t, "velum", pod.Name)
	assert.Len(r.t, pod.Images, 1)
}

// asideIsPutBack: if the daemon died while the pod manifest was set aside, put-back restores it. The test runs it on a
// copy, so that the daemon finds the remains, or in place, as the unit does.
func (r *pointsRig) asideIsPutBack(p pointsRelease, label string) {
	r.t.Helper()
	if _, err := os.Stat(r.Path(story.VelumYAML)); err == nil {
		return
	}
	const dir = "var/lib/copy/manifests"
	require.NoError(r.t, os.RemoveAll(r.Path(dir)))
	require.NoError(r.t, os.CopyFS(r.Path(dir), os.DirFS(r.Manifests)))
	r.WriteFile("var/lib/copy/config.yaml", "podManifests: /"+dir+"\n")
	r.putBack(p, dir, "--config", r.Path("var/lib/copy/config.yaml"))
	if r.s.putBack != nil && r.s.putBack(label) {
		r.putBack(p, story.ManifestDir)
	}
}

func (r *pointsRig) putBack(p pointsRelease, dir string, config ...string) {
	r.t.Helper()
	back := r.Agent(append([]string{"put-back"}, config...)...)
	require.Equal(r.t, 0, back.Code, back.Stderr)
	assert.Equal(r.t, "velum.yaml\n", back.Stdout)
	r.onlyVelum(r.Path(dir))
	if p.fault == "" { // otherwise it may be the failing one
		assert.Equal(r.t, p.manifest, r.ReadFile(filepath.Join(dir, "velum.yaml")))
	}
}

func (r *pointsRig) readRecord() record.Record {
	r.t.Helper()
	var record record.Record
	require.NoError(r.t, json.Unmarshal([]byte(r.ReadFile(story.RecordFile)), &record))
	return record
}

// digestOf returns the digest of a named release; "" for nil.
func digestOf(n *status.Named) string {
	if n == nil {
		return ""
	}
	return n.Digest.String()
}

// stageLeases returns the leases of stagings.
func stageLeases(t *testing.T, r *pointsRig) []string {
	t.Helper()
	client, err := containerd.New(r.Containerd.Socket, containerd.WithDefaultNamespace("k8s.io"))
	require.NoError(t, err)
	defer func() { _ = client.Close() }()
	held, err := client.LeasesService().List(t.Context())
	require.NoError(t, err)
	var ours []string
	for _, lease := range held {
		if of, ok := lease.Labels[stageLease]; ok {
			ours = append(ours, of)
		}
	}
	return ours
}
