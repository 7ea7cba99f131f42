// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/e2e/fleetserver"
	"github.com/kubic-project/image-update-agent/e2e/story"
	"github.com/kubic-project/image-update-agent/internal/etcdlock"
	"github.com/kubic-project/image-update-agent/internal/quorum"
	"github.com/kubic-project/image-update-agent/internal/registry/registrytest"
)

// BenchmarkLockInEtcd measures a lock and its release in a key of a real etcd with three members, compared with two reads
// and two writes of etcd's JSON gateway over an open connection.
func BenchmarkLockInEtcd(b *testing.B) {
	ca, cert, key := registrytest.Certificate(b)
	cluster := story.StartEtcd(b, "--client-cert-auth=true", "--trusted-ca-file="+ca, "--cert-file="+cert, "--key-file="+key)
	file := node.PodFile{Name: "kube-apiserver.yaml", Data: []byte(strings.Join([]string{
		"apiVersion: v1", "kind: Pod", "metadata: {name: kube-apiserver}", "spec:", "  containers:", "  - name: kube-apiserver",
		"    command: [kube-apiserver, '--etcd-servers=" + cluster.Members[0].Client + "', --etcd-cafile=" + ca + ",",
		"      --etcd-certfile=" + cert + ", --etcd-keyfile=" + key + "]\n",
	}, "\n"))}
	c, err := etcdlock.New(etcdlock.Options{
		Etcd: func(context.Context) (etcdlock.Ask, error) { return quorum.Control{}.Etcd([]node.PodFile{file}) },
		Node: "node-1", Machine: "m",
	})
	require.NoError(b, err)
	pair, err := tls.LoadX509KeyPair(cert, key)
	require.NoError(b, err)
	pool := x509.NewCertPool()
	require.True(b, pool.AppendCertsFromPEM([]byte(registrytest.Text(b, ca))))
	store := fleetserver.Store{URLs: []string{cluster.Members[0].Client}, Client: &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: pool},
	}}}
	var all, beside []float64
	for b.Loop() {
		began := time.Now()
		_, err := c.Lock(b.Context())
		require.NoError(b, err)
		require.NoError(b, c.Unlock(b.Context()))
		took := time.Since(began)
		began = time.Now()
		for range 2 {
			_, version, err := store.Get(b.Context(), "bench")
			require.NoError(b, err)
			_, err = store.Put(b.Context(), "bench", []byte(`{"holder":"node-1"}`), version)
			require.NoError(b, err)
		}
		all = append(all, took.Seconds()*1000)
		beside = append(beside, (took-time.Since(began)).Seconds()*1000)
	}
	b.ReportMetric(median(beside), "beside-ms")
	b.ReportMetric(median(all), "all-ms")
	b.ReportMetric(0, "ns/op")
}
