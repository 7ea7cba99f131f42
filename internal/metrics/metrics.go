// SPDX-License-Identifier: Apache-2.0

// Package metrics tells Prometheus how the agent is doing: the same answers as
// the status, as numbers to be plotted and to raise alarms on.
//
// # Words
//
// A reading is read when somebody asks for it, and nothing of it is kept. A count
// is of what has happened since the start of the daemon: [Counts] are told of it,
// and survive a reload of the configuration.
//
// # Promises
//
//   - Nothing is computed before a scrape: a node that nobody scrapes pays for
//     some counters and the code.
//   - Names and labels stay as they are once released. Units are seconds and bytes;
//     times are seconds since 1970.
//   - The number of series is bounded: 256 repositories and 256 hosts, in
//     alphabetical order, of counts those that came first; what is beyond is told
//     as one, named "other".
//   - Nothing of the Go runtime or of the process: systemd and its cgroup know
//     better, and it costs more than all the rest.
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

// Bounds of what may come from outside.
const (
	maxSeries = 256 // of one metric, by repository or by host
	maxLabel  = 256 // bytes; a repository has at most 255
	maxScrape = 2   // at once: more wait for nobody, they are told to come again
)

// other stands for what is beyond maxSeries. No repository is named so, as each
// has a host and a slash, and no host that has a dot or a port.
const other = "other"

// namespace begins each name.
const namespace = "image_update_agent_"

// Readings is where the numbers come from. All functions are called at each
// scrape, from any goroutine; none may be nil.
type Readings struct {
	// Version is the agent's own.
	Version string
	// Requests counts what was sent to registries, by kind of request.
	Requests func() map[string]uint64
	// Received counts the bytes that came from them.
	Received func() uint64
	// Pace is what hosts and budget leave for later.
	Pace func() record.Pace
	// PerHour is the budget of requests; 0: there is none, and no number of it.
	PerHour func() int
	// Status is the node as of the last cycle.
	Status func() status.Status
	// Holds are the names of all holds: each has its number, also where none stands.
	Holds []string
	// Now is the clock.
	Now func() time.Time
}

// Handler serves the numbers in Prometheus' text format.
func Handler(r Readings, c *Counts) http.Handler {
	own := prometheus.NewPedanticRegistry()
	own.MustRegister(newCollector(r))
	own.MustRegister(c.collectors()...)
	return promhttp.HandlerFor(own, promhttp.HandlerOpts{
		MaxRequestsInFlight: maxScrape,
		DisableCompression:  true, // on the same machine it only costs
	})
}

// bounded keeps so many values that none more is needed for the rest, which sum
// makes one of.
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

// label is a name from outside as Prometheus takes it.
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
