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

// restartBuckets are where restarts differ (docs/dev/performance.md, Downtime): a
// rebuild takes 1 s, a revision 2, a rollback 2 to 3, a pod with init containers 4
// to 6, one that loses its registry 4 to 7, a manifest that kubelet meets
// too early 10 to 15. A pod is looked at twice a second, so finer ones would lie.
var restartBuckets = []float64{0.5, 1, 1.5, 2, 2.5, 3, 5, 7.5, 10, 15, 20, 30, 60, 120, 300}

// applyBuckets are of the whole apply, most of which is the proof: the settle time
// of 30 s by default, and the timeout of 5 m where it does not come up.
var applyBuckets = []float64{1, 2.5, 5, 10, 20, 30, 32.5, 35, 40, 60, 120, 300, 330, 360, 600}

// nowhere is the host of a failure that reached none: the budget was spent, or a
// hosts.toml could not be read.
const nowhere = "none"

// Counts are what has happened since the start. It is an agent.Meter, safe for
// concurrent use. One serves all agents of a daemon, so that a reload loses nothing.
type Counts struct {
	turns                                prometheus.Counter
	failures, stages, applies, rollbacks *prometheus.CounterVec
	took                                 prometheus.Histogram
	restarts                             *prometheus.HistogramVec

	mu    sync.Mutex
	hosts map[string]bool // that have a series
}

var _ agent.Meter = (*Counts)(nil)

// NewCounts begins at zero.
func NewCounts() *Counts {
	vec := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: namespace + name, Help: help}, labels)
	}
	c := &Counts{
		turns: prometheus.NewCounter(prometheus.CounterOpts{
			Name: namespace + "loop_turns_total", Help: "Cycles that were done.",
		}),
		failures:  vec("poll_failures_total", "Polls that had no answer, by the host asked last.", "host", "cause"),
		stages:    vec("stages_total", "Pulls of releases ahead of time, by how they ended.", "result"),
		applies:   vec("applies_total", "Applies that were carried to their end, by how they ended.", "result"),
		rollbacks: vec("rollbacks_total", "Rollbacks that were carried to their end, by who wanted them.", "result", "by"),
		took: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: namespace + "apply_duration_seconds", Buckets: applyBuckets,
			Help: "Time of an apply that was not held: preparation, restart, proof with its settle time.",
		}),
		restarts: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: namespace + "pod_restart_seconds", Buckets: restartBuckets,
			Help: "Time from the beginning of a restart until the pod was seen to be up for good; looked at twice a second.",
		}, []string{"of"}),
		hosts: map[string]bool{},
	}
	c.begin()
	return c
}

// begin makes the series that a node has from its start: of one that begins with
// its first event, Prometheus would miss that.
func (c *Counts) begin() {
	for _, result := range []status.Result{status.ResultHeld, status.ResultFailed} {
		c.stages.WithLabelValues(string(result))
	}
	c.stages.WithLabelValues(staged)
	for _, result := range []status.Result{status.ResultApplied, status.ResultHeld, status.ResultFailed} {
		c.applies.WithLabelValues(string(result))
	}
	for _, result := range []status.Result{status.ResultBack, status.ResultHeld, status.ResultFailed} {
		for _, by := range []string{byItself, byPerson} {
			c.rollbacks.WithLabelValues(string(result), by)
		}
	}
	for _, of := range []string{ofApply, ofRollback} {
		c.restarts.WithLabelValues(of)
	}
}

// Values of labels. Results are those of `apply`; a pull that worked is staged.
const (
	staged     = "staged"
	byItself   = "itself"
	byPerson   = "person"
	ofApply    = "apply"
	ofRollback = "rollback"
)

func (c *Counts) collectors() []prometheus.Collector {
	return []prometheus.Collector{c.turns, c.failures, c.stages, c.applies, c.rollbacks, c.took, c.restarts}
}

// Turned counts a cycle.
func (c *Counts) Turned() { c.turns.Inc() }

// Failed counts a poll without an answer.
func (c *Counts) Failed(host string, cause release.Cause) {
	c.failures.WithLabelValues(c.host(host), string(cause)).Inc()
}

// host is the label of a host: its own as long as there are not too many.
func (c *Counts) host(name string) string {
	if name == "" {
		return nowhere
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

// Restarted counts an apply or a rolling back.
func (c *Counts) Restarted(r apply.Restart) {
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
