// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/agenttest"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/source"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/tags"
)

// signing returns a node that runs a signed velum; later releases are signed or not.
func signing(t *testing.T, pol policy.Signatures) (*world, *agenttest.Verifier) {
	t.Helper()
	w := newWorld(t)
	v := agenttest.NewVerifier("sha256:ours")
	w.Verifier = v
	w.Policy.Rule = func(string) policy.Rule { return policy.Rule{Updates: tags.Revision, Signatures: pol} }
	first := w.Registry.Release(velum, "4.0.0", 1, "1.1")
	v.Sign(first.Digest, "sha256:ours")
	w.Node.PutTemplate("velum.yaml", podYAML("velum", "velum="+velum+":4.0.0"))
	require.Equal(t, status.StateCurrent, w.check().State)
	w.runs("velum.yaml", "velum", first.Digest)
	v.Asked()
	return w, v
}

func TestSignatureIsVerifiedOnceAndBeforeThePull(t *testing.T) {
	t.Parallel()
	w, v := signing(t, policy.SignaturesRequire)
	next := w.Registry.Release(velum, "4.0.0", 1, "1.2")
	v.Sign(next.Digest, "sha256:ours")
	s := w.poll()
	i := image(s, "velum.yaml", "velum")
	require.NotNil(t, i.Offered, s.Reason)
	assert.Equal(t, "sha256:ours", i.SignedBy)
	assert.Equal(t, 1, v.Asked())
	w.poll()
	w.restart()
	w.poll()
	assert.Zero(t, v.Asked())
	w.applies()
}

func TestUnsignedReleaseWaitsAndIsVerifiedAgain(t *testing.T) {
	t.Parallel()
	w, v := signing(t, policy.SignaturesRequire)
	w.agent.Jitter = func() float64 { return 0.5 }
	next := w.Registry.Release(velum, "4.0.0", 1, "1.2")
	w.poll()
	assert.Empty(t, w.Node.Names(next.Digest), "not a byte of it is fetched")
	assert.Equal(t, 1, v.Asked())
	w.restart()
	s := w.observe()
	i := image(s, "velum.yaml", "velum")
	assert.Nil(t, i.Offered)
	require.NotEmpty(t, i.Refused)
	assert.Equal(t, policy.RuleSignature, i.Refused[0].Rule)
	assert.Contains(t, i.Refused[0].Reason, "not signed; next try at 2026-05-01T12:05:00Z")
	assert.Equal(t, time.Date(2026, time.May, 1, 12, 5, 0, 0, time.UTC), i.Refused[0].RetryAt)
	assert.Equal(t, status.StateHeld, s.State, s.Reason)
	w.idle()
	w.agent.Jitter = func() float64 { return 0.5 }
	plain := v.Asked()
	w.check()
	assert.Equal(t, plain+1, v.Asked(), "a person does not wait")
	v.Sign(next.Digest, "sha256:ours")
	w.Clock.Add(5*time.Minute - time.Second)
	v.Asked()
	w.observe()
	assert.Zero(t, v.Asked(), "a second too early")
	w.Clock.Add(time.Second)
	s = w.observe()
	assert.Equal(t, status.StateStaged, s.State, s.Reason)
	assert.Equal(t, next.Digest, image(s, "velum.yaml", "velum").Offered.Digest)
	assert.NotContains(t, w.Disk.JSON(), `"unsigned"`)
}

// While the newest release is verified again, the offer stays.
func TestSecondVerificationKeepsTheOffer(t *testing.T) {
	t.Parallel()
	w, v := signing(t, policy.SignaturesRequire)
	second := w.Registry.Release(velum, "4.0.0", 2, "1.1")
	v.Sign(second.Digest, "sha256:ours")
	w.publish(3, "1.1")
	s := w.poll()
	require.NotNil(t, image(s, "velum.yaml", "velum").Offered, s.Reason)
	assert.Equal(t, second.Digest, image(s, "velum.yaml", "velum").Offered.Digest)
	v.Asked()
	w.Clock.Add(48 * time.Hour)
	plan, err := w.agent.Plan(t.Context(), source.PollNone)
	require.NoError(t, err)
	assert.Empty(t, plan.Steps)
	w.observe()
	assert.Equal(t, 1, v.Asked())
	w.idle()
}

func TestPolicyWarnOnlyNotesUnsignedReleases(t *testing.T) {
	t.Parallel()
	w, v := signing(t, policy.SignaturesWarn)
	next := w.Registry.Release(velum, "4.0.0", 1, "1.2")
	s := w.poll()
	i := image(s, "velum.yaml", "velum")
	require.NotNil(t, i.Offered, s.Reason)
	assert.Equal(t, next.Digest, i.Offered.Digest)
	assert.Contains(t, i.Notes, "signature not verified: not signed")
	assert.Empty(t, i.SignedBy)
	w.idle()
	v.Asked()

	// A release that was staged before signatures were required is verified.
	w.Policy.Rule = func(string) policy.Rule {
		return policy.Rule{Updates: tags.Revision, Signatures: policy.SignaturesRequire}
	}
	w.restart()
	s = w.observe()
	assert.Nil(t, image(s, "velum.yaml", "velum").Offered, s.Reason)
	v.Sign(next.Digest, "sha256:ours")
	w.Clock.Add(24 * time.Hour)
	s = w.observe()
	require.NotNil(t, image(s, "velum.yaml", "velum").Offered, s.Reason)
	assert.Equal(t, "sha256:ours", image(s, "velum.yaml", "velum").SignedBy)
}

// A new pod waits for the signature, and the status says so.
func TestNewPodWaitsForItsSignature(t *testing.T) {
	t.Parallel()
	w, v := signing(t, policy.SignaturesRequire)
	other := w.Registry.Release(mariadb, "10.0", 1, "1.1")
	w.Node.PutTemplate("db.yaml", podYAML("db", "db="+mariadb+":10.0"))
	s := w.check()
	assert.Equal(t, status.StateHeld, s.State)
	assert.Contains(t, s.Reason, "not signed")
	assert.Empty(t, w.Node.PodManifest("db.yaml"))
	v.Sign(other.Digest, "sha256:ours")
	w.Clock.Add(10 * time.Minute)
	s = w.observe()
	assert.Equal(t, status.StateCurrent, s.State, s.Reason)
	assert.NotEmpty(t, w.Node.PodManifest("db.yaml"))
}

// Releases signed by a removed key are verified again while they are only staged. Running ones
// are not touched.
func TestSignatureOfARemovedKeyIsVoid(t *testing.T) {
	t.Parallel()
	w, v := signing(t, policy.SignaturesRequire)
	next := w.Registry.Release(velum, "4.0.0", 1, "1.2")
	v.Sign(next.Digest, "sha256:ours")
	require.Equal(t, status.StateStaged, w.poll().State)
	v.Asked()
	v.Replace("sha256:new")

	s := w.observe()

	assert.Equal(t, 1, v.Asked())
	i := image(s, "velum.yaml", "velum")
	assert.Nil(t, i.Offered, s.Reason)
	require.NotEmpty(t, i.Refused)
	assert.Equal(t, policy.RuleSignature, i.Refused[0].Rule)
	out, _ := w.apply()
	assert.NotEqual(t, status.ResultApplied, out[0].Result)
	v.Sign(next.Digest, "sha256:new")
	v.Replace("sha256:ours") // and back: a second refusal does not count
	v.Replace("sha256:new")
	w.restart()
	assert.Equal(t, status.StateHeld, w.observe().State, "refused under the same keys, until its back-off is over")
	v.Replace("sha256:third")
	v.Sign(next.Digest, "sha256:third")
	s = w.check()
	assert.Equal(t, status.StateStaged, s.State, s.Reason)
	assert.Equal(t, "sha256:third", image(s, "velum.yaml", "velum").SignedBy)
}

// A running image is not staged any more: an unsigned build that kubelet pulled for one container, and that another one
// is refused, does not prevent storing a rendered file.
func TestRenderedFileDoesNotWaitForRunningImages(t *testing.T) {
	t.Parallel()
	w, v := signing(t, policy.SignaturesRequire)
	sign := func(r release.Release) { v.Sign(r.Digest, "sha256:ours") }
	sign(w.Registry.Release(mariadb, "10.0", 1, "1.1"))
	containers := []string{"velum=" + velum + ":4.0.0", "db=" + mariadb + ":10.0", "init:setup=" + velum + ":4.0.0"}
	w.Node.PutTemplate("two.yaml", podYAML("two", containers...))
	require.Equal(t, status.StateCurrent, w.check().State)
	w.Registry.Release(velum, "4.0.0", 1, "1.2")
	sign(w.Registry.Release(mariadb, "10.0", 1, "1.2"))
	w.Node.Restart("two.yaml", "velum")
	other := strings.Replace(string(podYAML("two", containers...)), "spec:", "spec:\n  priority: 1", 1)
	w.Node.PutTemplate("two.yaml", []byte(other))
	w.check()
	assert.Contains(t, w.Node.WaitingFile("two.yaml"), "priority")
	w.idle()
}

// A running image that kubelet pulled counts whether signed or not: an offer for another container of the pod does not
// verify it.
func TestRunningImageIsNotVerified(t *testing.T) {
	t.Parallel()
	w, v := signing(t, policy.SignaturesRequire)
	db := w.Registry.Release(mariadb, "10.0", 1, "1.1")
	v.Sign(db.Digest, "sha256:ours")
	w.Node.PutTemplate("velum.yaml", podYAML("velum", "velum="+velum+":4.0.0", "db="+mariadb+":10.0"))
	w.check()
	w.applies()
	w.Registry.Release(velum, "4.0.0", 1, "1.2")
	db = w.Registry.Release(mariadb, "10.0", 1, "1.2")
	v.Sign(db.Digest, "sha256:ours")
	w.Node.Restart("velum.yaml", "velum")
	v.Asked()
	s := w.check()
	assert.Equal(t, status.StateStaged, s.State, s.Reason)
	assert.Equal(t, 1, v.Asked())
}
