// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"maps"
	"path"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubic-project/image-update-agent/agent/fleet"
	"github.com/kubic-project/image-update-agent/agent/localregistry"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/catalog"
	"github.com/kubic-project/image-update-agent/tags"
)

// descriptions describe the metrics computed from several values at a scrape; a field of the status has its description
// in its tags.
var descriptions = []struct {
	name, help string
	labels     []string
}{
	{"build_info", "Always 1, with the versions of the agent and of Go.", []string{"version", "goversion"}},
	{"state", "1 for the state of the node, 0 for the other states.", []string{"state"}},
	{
		"last_success_timestamp_seconds",
		"Oldest of the last answers for each repository; absent until each has an answer.", nil,
	},
	{"last_success_age_seconds", "Age of the oldest of the last answers for each repository.", nil},
	{"source_last_success_age_seconds", "Age of the last answer for the repository.", []string{"repository"}},
	{
		"source_off_hosts_toml",
		"1 if a host failed before the one that answered for the repository, or if containerd ignores its hosts.toml.",
		[]string{"repository"},
	},
	{
		"offers",
		"Containers with an available update, by its size: convert, rebuild, revision, patch, minor or major; " +
			"remove counts pod manifests.",
		[]string{"change"},
	},
	{
		"offered_severity",
		"Containers with an available update of a severity: low, moderate, important or critical, as the publisher of " +
			"the release catalog says it; absent without a catalog.",
		[]string{"severity"},
	},
	{"waiting_for_approval", "Pod manifests that only wait for a person's approval, in any state.", nil},
	{"staged_bytes", "Compressed size of the staged updates; shared layers count each time.", nil},
	{"holds", "Pod manifests and images that a hold blocks, by the hold.", []string{"hold"}},
	{
		"release_info",
		"Always 1, with the state of a release on the node: failed, held, offered (not staged), staged, starting (or " +
			"not verified yet) or running. A release is listed once, catalog is REPOSITORY:CHANNEL.",
		[]string{"catalog", "repository", "tag", "digest", "state"},
	},
	{"withdrawn", "Containers that run a release that the catalog has withdrawn.", []string{"repository"}},
	{
		"local_registry_tags",
		"Tags that the local registry serves, by registry and position (fallback or gate); absent if it is not " +
			"enabled.",
		[]string{"registry", "position"},
	},
	{
		"local_registry_lost",
		"1 if the local registry was enabled for the registry, but containerd no longer asks it there.",
		[]string{"registry", "wanted"},
	},
	{
		"local_registry_wanted_known",
		"1 if the agent knows for which registries the local registry was enabled, else 0.",
		nil,
	},
	{
		"local_registry_tags_unanswered",
		"Followed tags that the local registry does not serve.",
		[]string{"registry", "position"},
	},
	{
		"local_registry_answers_total",
		"Answers of the local registry since the boot: served, unknown (containerd asks the next host) or " +
			"refused.",
		[]string{"result"},
	},
	{"local_registry_up", "1 if the local registry answers the agent, else 0.", nil},
	{
		"local_registry_table_saved",
		"1 if the table of the local registry is up to date, 0 if it could not be saved.", nil,
	},
	{
		"lock_state",
		"1 for the state of the fleet lock (free, waiting, held, releasing or refused), else 0; absent without a " +
			"lock.",
		[]string{"state"},
	},
	{"lock_release_failed", "1 if the node cannot release the fleet lock, so that the fleet stops.", nil},
	{
		"registry_requests_total",
		"Requests sent to registries and token servers, by kind: metadata, token or pull.",
		[]string{"kind"},
	},
	{"registry_received_bytes_total", "Bytes received from registries and token servers, with TLS and headers.", nil},
	{
		"registry_request_budget",
		"Requests that this node may send to registries in an hour; absent without a budget.",
		nil,
	},
	{"registry_request_budget_remaining", "Requests that remain of the hourly budget.", nil},
	{
		"registry_wait_seconds",
		"How long a host still asks the agent to wait (429 or 5xx with Retry-After).",
		[]string{"host"},
	},
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

// states returns all states, by precedence.
func states() []status.State {
	var out []status.State
	for _, kind := range status.StateKinds() {
		out = append(out, kind.State)
	}
	return out
}

// changes returns all changes of offers.
func changes() []string {
	out := []string{policy.ChangeConvert, policy.ChangeRemove}
	for c := tags.Rebuild; c <= tags.Major; c++ {
		out = append(out, c.String())
	}
	return out
}

// Describe sends all descriptions.
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
	c.releases(s, gauge)
	c.withdrawn(s, gauge)
	c.localRegistry(s.LocalRegistry, gauge, counter)
	c.lock(s.Lock, gauge)
}

// lock has no series on a node without a fleet lock.
func (c *collector) lock(l *fleet.LockStatus, gauge setGauge) {
	if l == nil {
		return
	}
	for _, state := range []fleet.LockState{
		fleet.LockFree, fleet.LockWaiting, fleet.LockHeld, fleet.LockReleasing, fleet.LockRefused,
	} {
		gauge("lock_state", number(l.State == state), string(state))
	}
	gauge("lock_release_failed", number(l.IsStuck()))
}

// releases omits those beyond maxSeries, which cannot be combined.
func (c *collector) releases(s status.Status, gauge setGauge) {
	catalog := ""
	if s.Catalog != nil {
		catalog = label(s.Catalog.Catalog)
	}
	for _, is := range s.Releases[:min(len(s.Releases), maxSeries)] {
		gauge("release_info", 1, catalog, label(is.Image), label(is.Tag), label(is.Digest.String()), string(is.State))
	}
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
			left = perHour // Pace omits a full budget
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

// sources reports how long ago each source answered, and the oldest answer.
func (c *collector) sources(sources []status.SourceStatus, all valuesOf, gauge setGauge) {
	successes, now := all["source_last_success_timestamp_seconds"], seconds(c.from.Now())
	for repository, at := range successes {
		gauge("source_last_success_age_seconds", age(now, at), repository)
	}
	off := map[string]float64{}
	for _, s := range sources {
		off[label(s.Repository)] = number(s.Skipped != "" || s.HostsIgnored != "")
	}
	for repository, value := range bounded(off, func(a, b float64) float64 { return max(a, b) }) {
		gauge("source_off_hosts_toml", value, repository)
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
	offers, severities := map[string]float64{}, map[catalog.Severity]float64{}
	staged, bytes := map[string]bool{}, int64(0)
	for _, i := range s.Images {
		if i.Offered == nil {
			continue
		}
		offers[i.Change]++
		if i.Brings != nil {
			severities[i.Brings.Severity]++
		}
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
	for _, severity := range catalog.Severities() {
		if s.Catalog != nil {
			gauge("offered_severity", severities[severity], string(severity))
		}
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
		if i.PodManifest == "" { // an image of the configuration; others have their pod manifest's holds
			count(i.Holds)
		}
	}
	for name, value := range bounded(holds, func(a, b float64) float64 { return a + b }) {
		gauge("holds", value, name)
	}
}

// localRegistry has no series if no hosts.toml names the node's local registry.
func (c *collector) localRegistry(
	own *localregistry.Status, gauge setGauge, counter func(name string, value uint64, labels ...string),
) {
	if own == nil {
		return
	}
	for n, r := range own.Registries {
		if n == maxSeries {
			break
		}
		registry := label(r.Registry)
		gauge("local_registry_tags", float64(len(r.Tags)), registry, string(r.Position))
		gauge("local_registry_tags_unanswered", float64(len(r.Unanswered)), registry, string(r.Position))
	}
	for n, l := range own.Lost {
		if n == maxSeries {
			break
		}
		gauge("local_registry_lost", 1, label(l.Registry), string(l.Wanted))
	}
	gauge("local_registry_wanted_known", number(own.WantedError == ""))
	if a := own.Answers; a != nil {
		counter("local_registry_answers_total", uint64(a.Served), "served")
		counter("local_registry_answers_total", uint64(a.Unknown), "unknown")
		counter("local_registry_answers_total", uint64(a.Refused), "refused")
	}
	gauge("local_registry_up", number(own.Down == ""))
	gauge("local_registry_table_saved", number(own.Error == ""))
}

// Fields of the status with the tag metric are gauges of that name, described by their tag help: a number, 1 or 0 for a
// bool, seconds since 1970 for a time, absent if the time is zero. Fields with the tag label distinguish the elements
// of a list. Elements beyond maxSeries are combined into one, other: numbers are added, for times the oldest counts.

// field is a tagged field of the status.
type field struct {
	name, help string
	labels     []string
	of         reflect.Type
}

// fieldsOf returns the tagged fields of a struct, and of the structs and lists in it.
func fieldsOf(of reflect.Type, labels []string) []field {
	labels = slices.Concat(labels, labelsOf(of))
	var out []field
	for f := range of.Fields() {
		if name, is := f.Tag.Lookup("metric"); is {
			out = append(out, field{name, f.Tag.Get("help"), labels, f.Type})
		}
		if inner := f.Type; isOurs(f, &inner) {
			out = append(out, fieldsOf(inner, labels)...)
		}
	}
	return out
}

func labelsOf(of reflect.Type) []string {
	var out []string
	for field := range of.Fields() {
		if name, is := field.Tag.Lookup("label"); is {
			out = append(out, name)
		}
	}
	return out
}

// isOurs reports whether a field of the document is a struct of the status, or of a feature's package, or a list of
// them, and sets t to that type.
func isOurs(f reflect.StructField, t *reflect.Type) bool {
	for (*t).Kind() == reflect.Pointer || (*t).Kind() == reflect.Slice {
		*t = (*t).Elem()
	}
	ours := path.Dir(reflect.TypeFor[status.Status]().PkgPath())
	return f.Tag.Get("json") != "-" && (*t).Kind() == reflect.Struct && path.Dir((*t).PkgPath()) == ours
}

// valuesOf has the values of tagged fields, by the metric's name and labels.
type valuesOf map[string]map[string]float64

const between = "\xff" // separates labels in a key; label removes it

func (r valuesOf) read(of reflect.Value, labels []string) {
	if of.Kind() == reflect.Slice {
		for n := range of.Len() {
			r.read(of.Index(n), labels)
		}
		return
	}
	if of = reflect.Indirect(of); !of.IsValid() {
		return
	}
	labels = slices.Clone(labels)
	for n := range of.NumField() {
		if _, is := of.Type().Field(n).Tag.Lookup("label"); is {
			labels = append(labels, label(of.Field(n).String()))
		}
	}
	for n := range of.NumField() {
		field := of.Type().Field(n)
		if name, is := field.Tag.Lookup("metric"); is {
			if value, is := numberOf(of.Field(n).Interface()); is {
				r.add(name, strings.Join(labels, between), value, combining(field.Type))
			}
		}
		if inner := field.Type; isOurs(field, &inner) {
			r.read(of.Field(n), labels)
		}
	}
}

func (r valuesOf) add(name, labels string, value float64, combine func(a, b float64) float64) {
	if r[name] == nil {
		r[name] = map[string]float64{}
	}
	if old, is := r[name][labels]; is {
		value = combine(old, value)
	}
	r[name][labels] = value
}

// numberOf returns the value of a field; false for a zero time, or if it is not a number.
func numberOf(value any) (float64, bool) {
	switch v := value.(type) {
	case bool:
		return number(v), true
	case *time.Time:
		if v == nil {
			return 0, false
		}
		return seconds(*v), true
	case time.Time:
		return seconds(v), !v.IsZero()
	}
	switch v := reflect.ValueOf(value); {
	case v.CanInt():
		return float64(v.Int()), true
	case v.CanUint():
		return float64(v.Uint()), true
	default:
		return 0, false
	}
}

func combining(of reflect.Type) func(a, b float64) float64 {
	if of == reflect.TypeFor[time.Time]() || of == reflect.TypeFor[*time.Time]() {
		return func(a, b float64) float64 { return min(a, b) }
	}
	return func(a, b float64) float64 { return a + b }
}

// tagged sends the tagged fields of a status, and returns them.
func (c *collector) tagged(s status.Status, gauge setGauge) valuesOf {
	all := valuesOf{}
	all.read(reflect.ValueOf(s), nil)
	for _, m := range c.fields {
		for key, value := range bounded(all[m.name], combining(m.of)) {
			var labels []string
			switch {
			case key == other:
				labels = slices.Repeat([]string{other}, len(m.labels))
			case len(m.labels) > 0:
				labels = strings.Split(key, between)
			}
			gauge(m.name, value, labels...)
		}
	}
	return all
}
