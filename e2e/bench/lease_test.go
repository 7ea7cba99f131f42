// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/e2e/story"
	"github.com/kubic-project/image-update-agent/internal/kubelease"
)

// BenchmarkLease measures a lock and its release in a Lease of a real API server, compared with two reads and two
// writes over an open connection.
func BenchmarkLease(b *testing.B) {
	api := story.StartAPIServer(b, story.StartEtcd(b))
	c, err := kubelease.New(kubelease.Options{
		Lease: "kube-system/bench", Kubeconfig: api.Kubeconfig("admin"), Node: "node-1", Machine: "m", Version: "bench",
	})
	require.NoError(b, err)
	const leases = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/"
	var all, beside []float64
	for b.Loop() {
		began := time.Now()
		_, err := c.Lock(b.Context())
		require.NoError(b, err)
		require.NoError(b, c.Unlock(b.Context()))
		took := time.Since(began)
		began = time.Now()
		for range 2 {
			api.Ask(http.MethodGet, leases+"bench", "")
			code, said := api.Ask(http.MethodPatch, leases+"bench",
				`{"spec": {"renewTime": "`+time.Now().UTC().Format("2006-01-02T15:04:05.000000Z")+`"}}`)
			require.Equal(b, http.StatusOK, code, said)
		}
		all = append(all, took.Seconds()*1000)
		beside = append(beside, (took-time.Since(began)).Seconds()*1000)
	}
	b.ReportMetric(median(beside), "beside-ms")
	b.ReportMetric(median(all), "all-ms")
	b.ReportMetric(0, "ns/op")
}
