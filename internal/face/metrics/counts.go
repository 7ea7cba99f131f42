// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"errors"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/agent/apply"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// restartBuckets fit measured restarts (docs/dev/performance.md, Downtime): a rebuild takes 1 s, a revision 2, a
// rollback 2 to 3, a pod with init containers 4 to 6, one that loses its registry 4 to 7, a manifest that kubelet reads
// too early 10 to 15. The agent observes a pod twice a second, so finer buckets would be wrong.
var restartBuckets = []float64{0.5, 1, 1.5, 2, 2.5, 3, 5, 7.5, 10, 15, 20, 30, 60, 120, 300}

// applyBuckets are for the whole apply, mostly the health check: a settle time of 30 s by default, or a timeout of 5 m.
var applyBuckets = []float64{1, 2.5, 5, 10, 20, 30, 32.5, 35, 40, 60, 120, 300, 330, 360, 600}

// noHost is the label of a failure before any host was asked: the budget was spent, or a
// hosts.toml could not be read.
const noHost = "none"

// Counts are the counters of a daemon since its start: an agent.Meter, safe for concurrent
// use. All agents of a daemon share one, so that a reload loses nothing.
type Counts struct {
	cycles                               prometheus.Counter
	failures, stages, applies, rollbacks *prometheus.CounterVec
	took                                 prometheus.Histogram
	restarts                             *prometheus.HistogramVec

	mu    sync.Mutex
	hosts map[string]bool // hosts with a series
}

var _ agent.Meter = (*Counts)(nil)

// NewCounts returns counters at zero.
func NewCounts() *Counts {
	vec := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: namespace + name, Help: help}, labels)
	}
	c := &Counts{
		cycles: prometheus.NewCounter(prometheus.CounterOpts{
			Name: namespace + "loop_turns_total",
			Help: "Cycles, at least one in ten minutes unless a pull or an apply takes longer.",
		}),
		failures: vec("poll_failures_total",
			"Failed polls, by the host that was asked last (none: no host was reached) and the cause.", "host", "cause"),
		stages:  vec("stages_total", "Pulls that have ended: staged, held (no space) or failed.", "result"),
		applies: vec("applies_total", "Applies that have ended: applied, held or failed (also if rolled back).", "result"),
		rollbacks: vec("rollbacks_total",
			"Rollbacks that have ended: rolled back, held or failed; automatic or by a person.", "result", "by"),
		took: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: namespace + "apply_duration_seconds", Buckets: applyBuckets,
			Help: "Duration of applies that were not held, mostly of the health check.",
		}),
		restarts: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: namespace + "pod_restart_seconds", Buckets: restartBuckets,
			Help: "Time from the start of a restart, by an apply or a rollback, until the pod stayed up; " +
				"at most 0.5 s too long.",
		}, []string{"of"}),
		hosts: map[string]bool{},
	}
	c.initSeries()
	return c
}

// initSeries creates the series at zero: Prometheus would miss the first event of a new series.
func (c *Counts) initSeries() {
	for _, result := range []status.Result{status.ResultHeld, status.ResultFailed} {
		c.stages.WithLabelValues(string(result))
	}
	c.stages.WithLabelValues(staged)
	for _, result := range []status.Result{status.ResultApplied, status.ResultHeld, status.ResultFailed} {
		c.applies.WithLabelValues(string(result))
	}
	for _, result := range []status.Result{status.ResultRolledBack, status.ResultHeld, status.ResultFailed} {
		for _, by := range []string{byItself, byPerson} {
			c.rollbacks.WithLabelValues(string(result), by)
		}
	}
	for _, of := range []string{ofApply, ofRollback} {
		c.restarts.WithLabelValues(of)
	}
}

// Values of labels. Results are those of `apply`; a successful pull is staged.
const (
	staged     = "staged"
	byItself   = "itself"
	byPerson   = "person"
	ofApply    = "apply"
	ofRollback = "rollback"
)

func (c *Counts) collectors() []prometheus.Collector {
	return []prometheus.Collector{c.cycles, c.failures, c.stages, c.applies, c.rollbacks, c.took, c.restarts}
}

// CycleDone counts a cycle.
func (c *Counts) CycleDone() { c.cycles.Inc() }

// Failed counts a poll without an answer.
func (c *Counts) Failed(host string, cause release.Cause) {
	c.failures.WithLabelValues(c.host(host), string(cause)).Inc()
}

// host returns the label of a host: its name, or other if there are too many.
func (c *Counts) host(name string) string {
	if name == "" {
		return noHost
	}
	name = label(name)
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.hosts[name] && len(c.hosts) >= maxSeries {
		return other
	}
	c.hosts[name] = true
	return name
}

// Staged counts a pull.
func (c *Counts) Staged(err error) {
	result := staged
	if errors.Is(err, release.ErrHeld) {
		result = string(status.ResultHeld)
	} else if err != nil {
		result = string(status.ResultFailed)
	}
	c.stages.WithLabelValues(result).Inc()
}

// Restarted counts an apply or a rollback.
func (c *Counts) Restarted(r apply.Measured) {
	of := ofApply
	if r.Back {
		of = ofRollback
		by := byItself
		if r.ByHand {
			by = byPerson
		}
		c.rollbacks.WithLabelValues(string(r.Result), by).Inc()
	} else {
		c.applies.WithLabelValues(string(r.Result)).Inc()
		if r.Result != status.ResultHeld {
			c.took.Observe(r.Took.Seconds())
		}
	}
	if r.Up > 0 {
		c.restarts.WithLabelValues(of).Observe(r.Up.Seconds())
	}
}
