// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"maps"
	"reflect"
	"runtime"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubic-project/image-update-agent/agent/fleet"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/tags"
)

// descriptions are of the metrics that are made of several values at a scrape; a field of the status has its own in its
// tags.
var descriptions = []struct {
	name, help string
	labels     []string
}{
	{"build_info", "Always 1, with the agent's version and the Go it was built with.", []string{"version", "goversion"}},
	{"state", "1 for the state that the node is in, 0 for the others.", []string{"state"}},
	{
		"last_success_timestamp_seconds",
		"The oldest of the repositories' last answers; not there while one has never answered.", nil,
	},
	{"last_success_age_seconds", "How long ago that was: what is known of the repositories is no older.", nil},
	{"source_last_success_age_seconds", "How long ago that was.", []string{"repository"}},
	{"offers", "Images of containers that an update is offered for, by what it changes.", []string{"change"}},
	{"waiting_for_approval", "Pod manifests for which a person's approval is all that is missing, in any state.", nil},
	{"staged_bytes", "Compressed size of the offers that are on the node and wait to be applied.", nil},
	{"holds", "Pod manifests and images that something holds back, by its name.", []string{"hold"}},
	{"withdrawn", "Containers that run a release which the catalog has withdrawn.", []string{"repository"}},
	{"own_host_tags", "Tags that the node's own host answers.", []string{"registry", "position"}},
	{
		"own_host_lost", "1 where the node's own host was enabled, and containerd does not ask it there any more.",
		[]string{"registry", "wanted"},
	},
	{"own_host_wanted_known", "1 if it is known for which registries it was enabled, else 0.", nil},
	{"own_host_tags_unanswered", "Followed tags that the own host does not answer.", []string{"registry", "position"}},
	{"own_host_answers_total", "Answers of the node's own host since the boot.", []string{"result"}},
	{"own_host_up", "1 if the node's own host answers the agent, else 0.", nil},
	{
		"own_host_table_saved",
		"1 if what the node's own host answers is up to date, 0 if its table could not be saved.", nil,
	},
	{
		"lock_state", "1 for what the node knows of its lock of the fleet, 0 for the others; not there without a lock.",
		[]string{"state"},
	},
	{"lock_refused", "1 where the lock server does not take the lock back, so that the fleet stops.", nil},
	{"registry_requests_total", "Requests sent to registries and token servers.", []string{"kind"}},
	{"registry_received_bytes_total", "Bytes that came from registries and token servers, TLS and headers included.", nil},
	{"registry_request_budget", "Requests that this node may send to registries in an hour.", nil},
	{"registry_request_budget_remaining", "Requests that remain of the budget.", nil},
	{"registry_wait_seconds", "For how long a host still wants to be left alone.", []string{"host"}},
}

// collector reads all numbers at each scrape.
type collector struct {
	from   Readings
	descs  map[string]*prometheus.Desc
	fields []field // of the status
}

func newCollector(r Readings) *collector {
	c := &collector{
		from: r, descs: map[string]*prometheus.Desc{}, fields: fieldsOf(reflect.TypeFor[status.Status](), nil),
	}
	for _, m := range descriptions {
		c.descs[m.name] = prometheus.NewDesc(namespace+m.name, m.help, m.labels, nil)
	}
	for _, m := range c.fields {
		c.descs[m.name] = prometheus.NewDesc(namespace+m.name, m.help, m.labels, nil)
	}
	return c
}

// states returns all states, in the order of their precedence.
func states() []status.State {
	return []status.State{
		status.StateApplying, status.StateFailed, status.StateHeld, status.StateStale,
		status.StateUnchecked, status.StateStaged, status.StateCurrent,
	}
}

// changes returns all changes of offers.
func changes() []string {
	out := []string{policy.ChangeConvert, policy.ChangeRemove}
	for c := tags.Rebuild; c <= tags.Major; c++ {
		out = append(out, c.String())
	}
	return out
}

// Describe names all readings.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		ch <- d
	}
}

// Collect reads all numbers.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	counter := func(name string, value uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(c.descs[name], prometheus.CounterValue, float64(value), labels...)
	}
	gauge := func(name string, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(c.descs[name], prometheus.GaugeValue, value, labels...)
	}
	for kind, n := range c.from.Requests() {
		counter("registry_requests_total", n, kind)
	}
	counter("registry_received_bytes_total", c.from.Received())
	gauge("build_info", 1, label(c.from.Version), runtime.Version())
	c.pace(gauge)
	s := c.from.Status()
	for _, state := range states() {
		gauge("state", number(s.State == state), string(state))
	}
	c.sources(s.Sources, c.tagged(s, gauge), gauge)
	c.offers(s, gauge)
	c.holds(s, gauge)
	c.withdrawn(s, gauge)
	c.ownHost(s.OwnHost, gauge, counter)
	c.lock(s.Lock, gauge)
}

// lock has no series on a node without a lock of the fleet.
func (c *collector) lock(l *fleet.LockStatus, gauge setGauge) {
	if l == nil {
		return
	}
	for _, state := range []fleet.LockState{fleet.LockFree, fleet.LockWaiting, fleet.LockHeld, fleet.LockReleasing} {
		gauge("lock_state", number(l.State == state), string(state))
	}
	gauge("lock_refused", number(l.IsStuck()))
}

// withdrawn has no series on a node without a catalog.
func (c *collector) withdrawn(s status.Status, gauge setGauge) {
	if s.Catalog == nil {
		return
	}
	withdrawn := map[string]float64{}
	for _, i := range s.Images {
		if i.Withdrawn != nil {
			withdrawn[label(i.Image)]++
		}
	}
	for repository, value := range bounded(withdrawn, func(a, b float64) float64 { return a + b }) {
		gauge("withdrawn", value, repository)
	}
}

type setGauge func(name string, value float64, labels ...string)

func (c *collector) pace(gauge setGauge) {
	p := c.from.Pace()
	if perHour := c.from.PerHour(); perHour > 0 {
		left := p.Budget.Remaining
		if p.Budget.PerHour == 0 {
			left = perHour // Pace leaves out a full budget
		}
		gauge("registry_request_budget", float64(perHour))
		gauge("registry_request_budget_remaining", float64(left))
	}
	waits := map[string]float64{}
	for host, w := range p.Waits {
		waits[label(host)] = max(0, w.Until.Sub(c.from.Now()).Seconds())
	}
	for host, value := range bounded(waits, func(a, b float64) float64 { return max(a, b) }) {
		gauge("registry_wait_seconds", value, host)
	}
}

// sources are how long ago each was answered, and the oldest of them.
func (c *collector) sources(sources []status.SourceStatus, all valuesOf, gauge setGauge) {
	successes, now := all["source_last_success_timestamp_seconds"], seconds(c.from.Now())
	for repository, at := range successes {
		gauge("source_last_success_age_seconds", age(now, at), repository)
	}
	isSilent := func(s status.SourceStatus) bool { return s.LastSuccess == nil }
	if len(sources) > 0 && !slices.ContainsFunc(sources, isSilent) {
		oldest := slices.Min(slices.Collect(maps.Values(successes)))
		gauge("last_success_timestamp_seconds", oldest)
		gauge("last_success_age_seconds", age(now, oldest))
	}
}

func age(now, then float64) float64 { return max(0, now-then) }

// offers counts offers by container, and bytes by image.
func (c *collector) offers(s status.Status, gauge setGauge) {
	offers, staged, bytes := map[string]float64{}, map[string]bool{}, int64(0)
	for _, i := range s.Images {
		if i.Offered == nil {
			continue
		}
		offers[i.Change]++
		if d := i.Offered.Digest.String(); i.Staged && !staged[d] {
			staged[d] = true
			bytes += i.Size
		}
	}
	for _, p := range s.PodManifests {
		if p.Change == policy.ChangeRemove {
			offers[p.Change]++ // it has no image
		}
	}
	for _, change := range changes() {
		gauge("offers", offers[change], change)
	}
	gauge("staged_bytes", float64(bytes))
	waiting := 0
	for _, r := range s.Reasons {
		if r.Kind == status.KindApproval {
			waiting++
		}
	}
	gauge("waiting_for_approval", float64(waiting))
}

func (c *collector) holds(s status.Status, gauge setGauge) {
	holds := map[string]float64{}
	for _, name := range c.from.Holds {
		holds[name] = 0
	}
	count := func(held []status.Hold) {
		seen := map[string]bool{}
		for _, h := range held {
			if !seen[h.Name] {
				seen[h.Name] = true
				holds[label(h.Name)]++
			}
		}
	}
	for _, p := range s.PodManifests {
		count(p.Holds)
	}
	for _, i := range s.Images {
		if i.PodManifest == "" { // an image of the configuration; others share their pod manifest's holds
			count(i.Holds)
		}
	}
	for name, value := range bounded(holds, func(a, b float64) float64 { return a + b }) {
		gauge("holds", value, name)
	}
}
