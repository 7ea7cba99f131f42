// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"io"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/localregistry"
	"github.com/kubic-project/image-update-agent/e2e/host"
	"github.com/kubic-project/image-update-agent/e2e/story"
)

// BenchmarkPowerCutAnswer measures answers of the installed local registry, from the start of a connection to the end
// of the answer: the first one, for which systemd starts a sandboxed process, and a later one of that process.
func BenchmarkPowerCutAnswer(b *testing.B) {
	answers := sized(30, 2)
	for _, root := range []host.Root{host.Systemd252, host.Systemd257} {
		b.Run(string(root), func(b *testing.B) {
			h, _ := story.WithLocalRegistry(b, root)
			require.Contains(b, []string{"running", "degraded"}, h.Boot()) // without containerd
			var first, later []float64
			for b.Loop() {
				for range answers {
					h.Await(story.LocalRegistryService, "ActiveState", "inactive")
					first, later = append(first, answerMS(b, h)), append(later, answerMS(b, h))
				}
			}
			b.ReportMetric(slices.Min(first), "least-first-ms")
			b.ReportMetric(median(first), "first-ms")
			b.ReportMetric(slices.Max(first), "worst-first-ms")
			b.ReportMetric(median(later), "later-ms")
			b.ReportMetric(0, "ns/op")
			h.PowerOff()
		})
	}
}

// answerMS asks for the tag of story.WithLocalRegistry, and returns the milliseconds until the end of the answer.
func answerMS(b *testing.B, h *host.Host) float64 {
	b.Helper()
	began := time.Now()
	conn, err := h.Dial(b.Context(), "tcp", localregistry.Address)
	require.NoError(b, err)
	_, err = io.WriteString(conn, "HEAD /v2/caasp/velum/manifests/4.0.0-rev1?ns=registry.suse.com HTTP/1.1\r\n"+
		"Host: x\r\nUser-Agent: containerd/1.7.24\r\n\r\n")
	require.NoError(b, err)
	answer, err := io.ReadAll(conn)
	took := time.Since(began)
	require.NoError(b, err)
	require.Contains(b, string(answer), "HTTP/1.1 200 OK")
	require.NoError(b, conn.Close())
	return float64(took.Microseconds()) / 1000
}
