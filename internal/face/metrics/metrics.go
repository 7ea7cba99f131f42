// SPDX-License-Identifier: Apache-2.0

// Package metrics exports the status as numbers for Prometheus.
//
// # Words
//
// A reading is computed at a scrape. A count counts events since the start of the daemon; [Counts] survive a reload of
// the configuration.
//
// # Promises
//
//   - Readings are computed only at a scrape: a node without scrapes pays for some
//     counters.
//   - Released names and labels do not change. Units are seconds and bytes; times are
//     seconds since 1970.
//   - The number of series is limited: 256 repositories and 256 hosts, in alphabetical
//     order, of counts the first ones; the series "other" sums up the rest.
//   - There are no metrics of the Go runtime or of the process: systemd and its cgroup have better
//     ones, and these cost more than all the rest.
//
// Why a loopback port besides the socket: Prometheus scrapes no unix socket, and the port has no authentication, so
// names and other addresses are refused.
package metrics

import (
	"cmp"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// Limits of data from outside.
const (
	maxSeries = 256 // of one metric, by repository or by host
	maxLabel  = 256 // bytes; a repository has at most 255
	maxScrape = 2   // at once; more are refused
)

// other is the label of the series beyond maxSeries. No repository has that name, because each has a slash, and no host
// with a dot or a port.
const other = "other"

// namespace is the prefix of each name.
const namespace = "image_update_agent_"

// Readings are the sources of the numbers. The handler calls all functions at each scrape, from any goroutine; none may
// be nil.
type Readings struct {
	Version string // the agent's
	// Requests counts the requests to registries, by kind.
	Requests func() map[string]uint64
	// Received counts the bytes from registries.
	Received func() uint64
	// Pace returns the waits that hosts asked for, and the rest of the budget.
	Pace func() record.Pace
	// PerHour returns the budget of requests; 0 if there is none.
	PerHour func() int
	// Status returns the status of the last cycle.
	Status func() status.Status
	// Holds are the names of all holds; each has a series.
	Holds []string
	Now   func() time.Time
}

// Handler serves the numbers in Prometheus' text format.
func Handler(r Readings, c *Counts) http.Handler {
	own := prometheus.NewPedanticRegistry()
	own.MustRegister(newCollector(r))
	own.MustRegister(c.collectors()...)
	return promhttp.HandlerFor(own, promhttp.HandlerOpts{
		MaxRequestsInFlight: maxScrape,
		DisableCompression:  true, // compression on the same machine only costs time
	})
}

// bounded keeps maxSeries values, and combines the rest under the name other.
func bounded(values map[string]float64, sum func(a, b float64) float64) map[string]float64 {
	if len(values) <= maxSeries {
		return values
	}
	names := slices.SortedFunc(maps.Keys(values), cmp.Compare)
	rest := values[names[maxSeries]]
	for _, name := range names[maxSeries:] {
		if name != names[maxSeries] {
			rest = sum(rest, values[name])
		}
		delete(values, name)
	}
	values[other] = rest
	return values
}

// label makes a name from outside valid for Prometheus.
func label(name string) string {
	return strings.ToValidUTF8(name[:min(len(name), maxLabel)], "")
}

func number(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

func seconds(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }
