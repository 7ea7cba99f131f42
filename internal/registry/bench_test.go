// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/registry/transport"
)

const polled = 20

// benchServer answers every HEAD with a digest.
func benchServer(b *testing.B) string {
	b.Helper()
	d := digest.FromString("content").String()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/vnd.docker.distribution.manifest.v2+json")
		w.Header().Set(digestHeader, d)
		w.Header().Set("Content-Length", "1570")
		w.WriteHeader(http.StatusOK)
	}))
	b.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

func report(b *testing.B, c Counts) {
	b.ReportMetric(float64(c.Requests)/float64(b.N), "requests/op")
	b.ReportMetric(float64(c.Received+c.Sent)/float64(b.N), "wire-bytes/op")
	b.ReportMetric(float64(c.Connections), "connections")
}

// BenchmarkPoll20 measures the steady poll of 20 unchanged images.
func BenchmarkPoll20(b *testing.B) {
	host := benchServer(b)
	r := New(Options{Options: transport.Options{Version: "1.2.3"}, CertsDirs: []string{certsD(b, host, plainHTTP(host))}, Platform: node})
	b.Cleanup(r.Close)
	b.ReportAllocs()
	for b.Loop() {
		for i := range polled {
			_, err := r.Resolve(b.Context(), release.Reference{Repository: fmt.Sprintf("%s/caasp/v4/app%d", host, i), Tag: "1.0-rev1"})
			require.NoError(b, err)
		}
	}
	report(b, r.Counts())
}

// BenchmarkPoll20Floor measures the minimum: net/http alone, one HEAD each.
func BenchmarkPoll20Floor(b *testing.B) {
	host := benchServer(b)
	var c Counts
	tr := &http.Transport{}
	tr.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, address)
		c.Connections++
		return counted{conn, &c}, err
	}
	client := &http.Client{Transport: tr}
	b.Cleanup(tr.CloseIdleConnections)
	b.ReportAllocs()
	for b.Loop() {
		for i := range polled {
			req, err := http.NewRequestWithContext(b.Context(), http.MethodHead, fmt.Sprintf("http://%s/v2/caasp/v4/app%d/manifests/1.0-rev1", host, i), nil)
			require.NoError(b, err)
			req.Header.Set("Accept", acceptManifests)
			resp, err := client.Do(req)
			require.NoError(b, err)
			require.NoError(b, resp.Body.Close())
			c.Requests++
		}
	}
	tr.CloseIdleConnections()
	report(b, c)
}

// counted counts the bytes of a connection, as the registry's transport does.
type counted struct {
	net.Conn
	counts *Counts
}

func (c counted) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.counts.Received += uint64(max(n, 0))
	return n, err
}

func (c counted) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.counts.Sent += uint64(max(n, 0))
	return n, err
}
