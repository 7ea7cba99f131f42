// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubic-project/image-update-agent/agent/release"
)

// sandboxIn returns the status of a sandbox in a network.
func sandboxIn(mode cri.NamespaceMode, network *cri.PodSandboxNetworkStatus) *cri.PodSandboxStatus {
	return &cri.PodSandboxStatus{
		State: cri.PodSandboxState_SANDBOX_READY, Network: network,
		Linux: &cri.LinuxPodSandboxStatus{Namespaces: &cri.Namespace{Options: &cri.NamespaceOption{Network: mode}}},
	}
}

func TestSandboxOfAServer(t *testing.T) {
	t.Parallel()
	dual := &cri.PodSandboxNetworkStatus{Ip: "10.0.0.7", AdditionalIps: []*cri.PodIP{{Ip: "fd00::7"}}}
	down := sandboxIn(cri.NamespaceMode_POD, nil)
	down.State = cri.PodSandboxState_SANDBOX_NOTREADY
	for name, is := range map[string]struct {
		status  *cri.PodSandboxStatus
		ready   bool
		address string
	}{
		"network of its own":               {sandboxIn(cri.NamespaceMode_POD, dual), true, "10.0.0.7"},
		"host network of containerd":       {sandboxIn(cri.NamespaceMode_NODE, &cri.PodSandboxNetworkStatus{}), true, ""},
		"host network, no network at all":  {sandboxIn(cri.NamespaceMode_NODE, nil), true, ""},
		"host network with the host's own": {sandboxIn(cri.NamespaceMode_NODE, dual), true, ""},
		"down":                             {down, false, ""},
		"says only that it is ready":       {&cri.PodSandboxStatus{}, true, ""},
	} {
		f := &fakeRuntime{sandbox: func(context.Context, string) (*cri.PodSandboxStatus, error) { return is.status, nil }}
		r, _ := serve(t, f)
		ready, err := r.SandboxReady(t.Context(), "s1")
		require.NoError(t, err, name)
		assert.Equal(t, is.ready, ready, name)
		address, err := r.Address(t.Context(), "s1")
		require.NoError(t, err, name)
		assert.Equal(t, is.address, address, name)
	}
}

func TestSandboxFaults(t *testing.T) {
	t.Parallel()
	var asked string
	var answer error
	f := &fakeRuntime{sandbox: func(_ context.Context, id string) (*cri.PodSandboxStatus, error) {
		asked = id
		return nil, answer
	}}
	r, socket := serve(t, f)
	place := "cri " + socket + ": sandbox s1: "

	answer = status.Error(codes.NotFound, "no such sandbox")
	ready, err := r.SandboxReady(t.Context(), "s1")
	require.NoError(t, err, "what is gone is not up")
	assert.False(t, ready)
	assert.Equal(t, "s1", asked)
	_, err = r.Address(t.Context(), "s1")
	require.ErrorIs(t, err, release.ErrNotFound, "no address would pass for the host's")
	assert.EqualError(t, err, place+"not found: no such sandbox")

	for cause, words := range map[error]string{
		status.Error(codes.Unavailable, "shutting down"): "Unavailable: shutting down",
		nil: "the runtime reports no status", // whose zero value means ready
	} {
		answer = cause
		ready, err = r.SandboxReady(t.Context(), "s1")
		assert.False(t, ready)
		require.EqualError(t, err, place+words)
		_, err = r.Address(t.Context(), "s1")
		assert.EqualError(t, err, place+words)
	}
}

// A call to a runtime that does not answer ends at the deadline.
func TestSandboxHungServer(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	f := &fakeRuntime{sandbox: func(ctx context.Context, _ string) (*cri.PodSandboxStatus, error) {
		deadline, ok := ctx.Deadline()
		assert.True(t, ok)
		assert.LessOrEqual(t, time.Until(deadline), callTimeout)
		cancel()
		<-ctx.Done()
		return nil, ctx.Err()
	}}
	r, _ := serve(t, f)
	ready, err := r.SandboxReady(ctx, "s1")
	require.ErrorIs(t, err, context.Canceled)
	assert.False(t, ready)
}
