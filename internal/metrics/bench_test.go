// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// BenchmarkScrape measures a scrape of a small node.
func BenchmarkScrape(b *testing.B) {
	h := Handler(full(), busy())
	var size int
	for b.Loop() {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(b.Context(), http.MethodGet, "/metrics", nil))
		size = w.Body.Len()
	}
	b.ReportMetric(float64(size), "bytes/scrape")
}
