// SPDX-License-Identifier: Apache-2.0

package fleet_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/e2e/story"
	"github.com/kubic-project/image-update-agent/internal/fleet/kubelease"
)

const (
	leaseName = "kube-system/image-update-agent"
	leasePath = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/image-update-agent"
)

func leaseOf(t *testing.T, api *story.APIServer, id string, set ...func(*kubelease.Options)) *kubelease.Client {
	t.Helper()
	o := kubelease.Options{
		Lease: leaseName, Kubeconfig: api.Kubeconfig("admin"), Node: id, Machine: "machine of " + id, Version: "test",
		Timeout: story.Ready, Patience: time.Second,
	}
	for _, f := range set {
		f(&o)
	}
	c, err := kubelease.New(o)
	require.NoError(t, err)
	return c
}
