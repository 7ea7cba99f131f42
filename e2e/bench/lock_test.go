// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/e2e/fleetserver"
	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
	"github.com/kubic-project/image-update-agent/internal/fleetlock"
	"github.com/kubic-project/image-update-agent/internal/registry/registrytest"
)

// timed sums up a server's response times.
type timed struct {
	http.Handler
	took  time.Duration
	asked int
}

func (s *timed) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	s.Handler.ServeHTTP(w, r)
	s.took += time.Since(began)
	s.asked++
}

// BenchmarkLock measures a lock and its release, compared with the server's own time: over http, and over TLS with a
// client certificate, with a handshake for each request.
func BenchmarkLock(b *testing.B) {
	ca, cert, key := registrytest.Certificate(b)
	store := story.StartEtcd(b).Store()
	for _, secure := range []bool{false, true} {
		name := map[bool]string{false: "http", true: "tls"}[secure]
		b.Run(name, func(b *testing.B) {
			server := &timed{Handler: fleetserver.Server{Etcd: store}}
			s := httptest.NewUnstartedServer(server)
			o := fleetlock.Options{Group: "bench", ID: name, Version: "bench"}
			if secure {
				pair, err := tls.LoadX509KeyPair(cert, key)
				require.NoError(b, err)
				pool := x509.NewCertPool()
				require.True(b, pool.AppendCertsFromPEM([]byte(registrytest.Text(b, ca))))
				s.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool}
				s.StartTLS()
				o.CA, o.Cert, o.Key = ca, cert, key
			} else {
				s.Start()
			}
			defer s.Close()
			o.URL = s.URL
			c, err := fleetlock.New(o)
			require.NoError(b, err)
			var beside, all []float64
			for b.Loop() {
				server.took = 0
				began := time.Now()
				_, err := c.Lock(b.Context())
				require.NoError(b, err)
				require.NoError(b, c.Unlock(b.Context()))
				took := time.Since(began)
				all = append(all, took.Seconds()*1000)
				beside = append(beside, (took-server.took).Seconds()*1000)
			}
			b.ReportMetric(median(beside), "beside-ms")
			b.ReportMetric(slices.Max(beside), "beside-most-ms")
			b.ReportMetric(median(all), "all-ms")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// BenchmarkLockIdle compares the memory of a daemon with and without a lock, and counts the requests to the lock server
// while nothing is applied.
func BenchmarkLockIdle(b *testing.B) {
	server := &timed{Handler: http.NotFoundHandler()}
	s := httptest.NewServer(server)
	defer s.Close()
	n := node.Start(b, node.Options{Containerd: node.Containerd2})
	n.Registry.Intercept(alias)
	publishTags(b, n, 50)
	config := "interval: 1s\nconfirmAfter: 0\nrequestsPerHour: 0\nimages:\n"
	for i := range images20 {
		config += fmt.Sprintf("- %s/tags50/app%05d:1.0.0-rev1\n", n.Registry.Host, i)
	}
	idle := func(more string) float64 {
		n.WriteFile(story.ConfigFile, config+more)
		return idleDaemon(b, n)
	}
	idle("") // its staged images stay
	var grown []float64
	for b.Loop() {
		without := idle("apply:\n  mode: auto\n")
		grown = append(grown, idle("apply:\n  mode: auto\n  lock: {url: \""+s.URL+"\", pods: all}\n")-without)
	}
	b.ReportMetric(median(grown), "rss-growth-MB")
	b.ReportMetric(float64(server.asked), "requests")
	b.ReportMetric(0, "ns/op")
}
