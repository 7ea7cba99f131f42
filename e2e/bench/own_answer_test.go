// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"io"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/ownhost"
	"github.com/kubic-project/image-update-agent/e2e/host"
	"github.com/kubic-project/image-update-agent/e2e/story"
)

// BenchmarkPowerCutAnswer measures an answer of the own host as it is installed: from the begin of a connection, for
// which systemd starts a process in its sandbox, to the end of the answer.
func BenchmarkPowerCutAnswer(b *testing.B) {
	answers := sized(50, 2)
	for _, root := range []host.Root{host.Systemd252, host.Systemd257} {
		b.Run(string(root), func(b *testing.B) {
			h, _ := story.WithOwnHost(b, root)
			require.Contains(b, []string{"running", "degraded"}, h.Boot()) // there is no containerd
			var ms []float64
			for b.Loop() {
				for range answers {
					began := time.Now()
					conn, err := h.Dial(b.Context(), "tcp", ownhost.Address)
					require.NoError(b, err)
					_, err = io.WriteString(conn, "HEAD /v2/caasp/velum/manifests/4.0.0-rev1?ns=registry.suse.com HTTP/1.1\r\n"+
						"Host: x\r\nUser-Agent: containerd/1.7.24\r\n\r\n")
					require.NoError(b, err)
					answer, err := io.ReadAll(conn)
					require.NoError(b, err)
					require.Contains(b, string(answer), "HTTP/1.1 200 OK")
					ms = append(ms, float64(time.Since(began).Microseconds())/1000)
					require.NoError(b, conn.Close())
				}
			}
			b.ReportMetric(slices.Min(ms), "least-answer-ms")
			b.ReportMetric(median(ms), "answer-ms")
			b.ReportMetric(slices.Max(ms), "worst-answer-ms")
			b.ReportMetric(0, "ns/op")
			h.PowerOff()
		})
	}
}
