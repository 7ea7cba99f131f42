// SPDX-License-Identifier: Apache-2.0

// Package metrics tells Prometheus how the agent is doing: the same answers as
// the status, as numbers to be plotted and to raise alarms on.
//
// # Promises
//
//   - The numbers are read when somebody asks for them, and nothing is kept in
//     between: a node that nobody scrapes pays for nothing but the code.
//   - Names and labels stay as they are once released. Units are seconds; times
//     are seconds since 1970.
//   - The number of series is bounded: 256 repositories and 256 hosts, each by
//     name in alphabetical order; what is beyond is told as one, named "other".
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

	"github.com/kubic-project/image-update-agent/agent"
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

// Readings is where the numbers come from. All functions are called at each
// scrape, from any goroutine; none may be nil.
type Readings struct {
	// Requests counts what was sent to registries, by kind of request.
	Requests func() map[string]uint64
	// Pace is what hosts and budget leave for later.
	Pace func() agent.Pace
	// PerHour is the budget of requests; 0: there is none, and no number of it.
	PerHour func() int
	// Status is the node as of the last cycle.
	Status func() agent.Status
	// Now is the clock.
	Now func() time.Time
}

// Handler serves the numbers in Prometheus' text format.
func Handler(r Readings) http.Handler {
	own := prometheus.NewPedanticRegistry()
	own.MustRegister(newCollector(r))
	return promhttp.HandlerFor(own, promhttp.HandlerOpts{
		MaxRequestsInFlight: maxScrape,
		DisableCompression:  true, // over a unix socket it only costs
	})
}

// collector makes the numbers anew at each scrape.
type collector struct {
	from Readings

	requests, budget, budgetLeft, wait, state, lastCheck, failures, lastSuccess *prometheus.Desc
}

func newCollector(r Readings) *collector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("image_update_agent_"+name, help, labels, nil)
	}
	return &collector{
		from:       r,
		requests:   desc("registry_requests_total", "Requests sent to registries and token servers.", "kind"),
		budget:     desc("registry_request_budget", "Requests that this node may send to registries in an hour."),
		budgetLeft: desc("registry_request_budget_left", "Requests that are left of the budget."),
		wait:       desc("registry_wait_seconds", "For how long a host still wants to be left alone.", "host"),
		state:      desc("state", "1 for the state that the node is in, 0 for the others.", "state"),
		lastCheck:  desc("last_check_timestamp_seconds", "When the sources were last asked."),
		failures:   desc("source_failures", "Polls of a repository that failed in a row.", "repository"),
		lastSuccess: desc("source_last_success_timestamp_seconds",
			"When a repository was last answered for; not there before the first time.", "repository"),
	}
}

// states are all states, in the order of their precedence.
func states() []agent.State {
	return []agent.State{
		agent.StateApplying, agent.StateFailed, agent.StateHeld, agent.StateStale, agent.StateStaged, agent.StateCurrent,
	}
}

// Describe names all metrics.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		c.requests, c.budget, c.budgetLeft, c.wait, c.state, c.lastCheck, c.failures, c.lastSuccess,
	} {
		ch <- d
	}
}

// Collect reads all numbers.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	for kind, n := range c.from.Requests() {
		ch <- prometheus.MustNewConstMetric(c.requests, prometheus.CounterValue, float64(n), kind)
	}
	c.pace(gauge)
	s := c.from.Status()
	for _, state := range states() {
		gauge(c.state, number(s.State == state), string(state))
	}
	if s.LastCheck != nil {
		gauge(c.lastCheck, seconds(*s.LastCheck))
	}
	c.sources(s, gauge)
}

type setGauge func(d *prometheus.Desc, value float64, labels ...string)

func (c *collector) pace(gauge setGauge) {
	p := c.from.Pace()
	if perHour := c.from.PerHour(); perHour > 0 {
		left := p.Budget.Left
		if p.Budget.PerHour == 0 {
			left = perHour // a full budget is not spoken of
		}
		gauge(c.budget, float64(perHour))
		gauge(c.budgetLeft, float64(left))
	}
	waits := map[string]float64{}
	for host, w := range p.Waits {
		waits[label(host)] = max(0, w.Until.Sub(c.from.Now()).Seconds())
	}
	for host, value := range bounded(waits, func(a, b float64) float64 { return max(a, b) }) {
		gauge(c.wait, value, host)
	}
}

func (c *collector) sources(s agent.Status, gauge setGauge) {
	failures, successes := map[string]float64{}, map[string]float64{}
	for _, source := range s.Sources {
		repository := label(source.Repository)
		failures[repository] = float64(source.Failures)
		if source.LastSuccess != nil {
			successes[repository] = seconds(*source.LastSuccess)
		}
	}
	for repository, value := range bounded(failures, func(a, b float64) float64 { return a + b }) {
		gauge(c.failures, value, repository)
	}
	for repository, value := range bounded(successes, func(a, b float64) float64 { return min(a, b) }) {
		gauge(c.lastSuccess, value, repository)
	}
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
