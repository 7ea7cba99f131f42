// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/apply"
	"github.com/kubic-project/image-update-agent/agent/catalog"
	"github.com/kubic-project/image-update-agent/agent/fleet"
	"github.com/kubic-project/image-update-agent/agent/localregistry"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// readings returns the readings of an empty node; edit adds to it.
func readings(edit func(*status.Status, *record.Pace)) Readings {
	var s status.Status
	var p record.Pace
	s.State = status.StateCurrent
	edit(&s, &p)
	return Readings{
		Requests: func() map[string]uint64 { return map[string]uint64{"metadata": 12, "token": 3, "pull": 0} },
		Received: func() uint64 { return 4711 },
		Version:  "1.2.3", Holds: []string{status.HoldDisk, status.HoldWindow},
		Pace:    func() record.Pace { return p },
		PerHour: func() int { return 0 },
		Status:  func() status.Status { return s },
		Now:     func() time.Time { return noon },
	}
}

func full() Readings {
	check, next, success := noon.Add(-time.Hour), noon.Add(time.Hour), noon.Add(-90*time.Second)
	older := noon.Add(-100 * time.Second)
	r := readings(func(s *status.Status, p *record.Pace) {
		s.State, s.Since, s.LastCheck, s.NextCheck = status.StateStale, noon.Add(-time.Minute), &check, &next
		s.Reasons = []status.Reason{{Kind: status.KindSource}, {Kind: status.KindApproval, PodManifest: "velum.yaml"}}
		s.Sources = []status.SourceStatus{
			{Repository: "registry.suse.com/caasp/v4/velum", LastSuccess: &success},
			{Repository: "registry.suse.com/sles12/mariadb", LastSuccess: &older, Failures: 4, Skipped: "mirror m1:5000: 503"},
		}
		offer := func(pod, container, tag, change string, size int64, staged bool) status.ImageStatus {
			return status.ImageStatus{
				PodManifest: pod, Container: container, Change: change, Size: size, Staged: staged,
				Offered: &status.Named{Tag: tag, Digest: digest.FromString(tag)},
			}
		}
		s.Images = []status.ImageStatus{
			offer("velum.yaml", "velum", "velum:2", "revision", 1000, true),
			offer("velum.yaml", "worker", "velum:2", "revision", 1000, true), // the same image
			offer("db.yaml", "db", "db:2", "rebuild", 500, true),
			offer("dns.yaml", "dns", "dns:2", "minor", 70, false),
			{PodManifest: "a.yaml", Holds: []status.Hold{{Name: status.HoldDisk}}}, // as its pod manifest
			{Holds: []status.Hold{{Name: status.HoldDisk}}},
			{Image: "r/velum", PodManifest: "velum.yaml", Withdrawn: &catalog.Withdrawal{Reason: "broken"}},
		}
		s.LocalRegistry = &localregistry.Status{
			Registries: []localregistry.RegistryStatus{{
				Registry: "registry.suse.com", Position: "fallback", Tags: make([]localregistry.ServedTag, 6),
				Unanswered: make([]localregistry.UnservedTag, 1), LastServed: &older,
			}},
			Lost:    []localregistry.LostRegistry{{Registry: "ghcr.io", Wanted: "gate"}},
			Answers: &localregistry.Answers{Served: 5, Unknown: 2, Refused: 1}, Error: "no space left on device",
			Down: "local registry at 127.0.0.1:334: connection refused",
		}
		s.Releases = []status.ReleaseStatus{
			{Image: "r/velum", Tag: "2", Digest: digest.FromString("velum:2"), State: status.ReleaseStaged},
			{Image: "r/velum", Tag: "1", Digest: digest.FromString("velum:1"), State: status.ReleaseRunning},
		}
		published, expires := noon.Add(-time.Hour), noon.Add(time.Hour)
		s.Lock = &fleet.LockStatus{State: fleet.LockHeld, Since: published, Kept: true}
		s.Catalog = &catalog.Status{Catalog: "r/catalog:prod", Version: 12, Created: &published, Expires: &expires}
		s.PodManifests = []status.PodStatus{
			{PodManifest: "a.yaml", Holds: []status.Hold{{Name: status.HoldDisk}, {Name: status.HoldDisk, Reason: "2nd"}, {Name: "reboot"}}},
			{PodManifest: "b.yaml", Holds: []status.Hold{{Name: status.HoldDisk}}},
			{PodManifest: "gone.yaml", Change: policy.ChangeRemove},
		}
		p.Budget = record.Budget{PerHour: 60, Remaining: 7, At: noon}
		p.Waits = map[string]record.Wait{
			"registry.suse.com": {Until: noon.Add(90 * time.Second), Status: 429}, "mirror:5000": {Until: noon.Add(-time.Second), Status: 503},
		}
	})
	r.PerHour = func() int { return 60 }
	return r
}

// busy returns counts with all series.
func busy() *Counts {
	c := NewCounts()
	c.CycleDone()
	c.Failed("m1:5000", release.CauseTimeout)
	c.Staged(nil)
	c.Restarted(apply.Measured{Result: status.ResultApplied, Took: 31 * time.Second, Up: 1020 * time.Millisecond})
	c.Restarted(apply.Measured{Back: true, Result: status.ResultRolledBack, Took: 40 * time.Second, Up: 2 * time.Second})
	return c
}

var update = flag.Bool("update", false, "write what is served to testdata/full.txt")

// The complete output, byte for byte. The Go version is the builder's.
func TestAllMetrics(t *testing.T) {
	t.Parallel()
	const golden = "testdata/full.txt"
	text := strings.ReplaceAll(scrape(t, Handler(full(), busy())), runtime.Version(), "goX")
	if *update {
		require.NoError(t, os.WriteFile(golden, []byte(text), 0o600))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	assert.Equal(t, string(want), text)
}

// promtool's rules: units, suffixes, help.
func TestNamesFollowPrometheusRules(t *testing.T) {
	t.Parallel()
	problems, err := testutil.GatherAndLint(registered())
	require.NoError(t, err)
	assert.Equal(t, []promlint.Problem(nil), problems)
	seen := map[string]bool{}
	for name := range names(t) {
		// OpenMetrics does not allow two families that differ only in this.
		name = strings.TrimSuffix(name, "_total")
		assert.False(t, seen[name], name)
		seen[name] = true
	}
}

// registered has all series.
func registered() *prometheus.Registry {
	own := prometheus.NewPedanticRegistry()
	own.MustRegister(append(busy().collectors(), newCollector(full()))...)
	return own
}

// names returns the names of all metrics.
func names(t *testing.T) map[string]bool {
	t.Helper()
	families, err := registered().Gather()
	require.NoError(t, err)
	names := map[string]bool{}
	for _, f := range families {
		names[f.GetName()] = true
	}
	return names
}

// A reading without a value is absent, not zero.
func TestReadingsWithoutStatus(t *testing.T) {
	t.Parallel()
	c := newCollector(readings(func(*status.Status, *record.Pace) {}))
	assert.Equal(t, 3, testutil.CollectAndCount(c, "image_update_agent_registry_requests_total"))
	assert.Equal(t, 7, testutil.CollectAndCount(c, "image_update_agent_state"))
	for _, name := range []string{
		"state_since_timestamp_seconds", "last_check_timestamp_seconds", "next_check_timestamp_seconds",
		"last_success_timestamp_seconds", "last_success_age_seconds", "source_failures", "source_last_success_age_seconds",
		"registry_request_budget", "registry_request_budget_remaining", "registry_wait_seconds",
	} {
		require.Contains(t, c.descs, name)
		assert.Zero(t, testutil.CollectAndCount(c, namespace+name), name)
	}
}

func TestAFullBudget(t *testing.T) {
	t.Parallel()
	r := readings(func(*status.Status, *record.Pace) {})
	r.PerHour = func() int { return 100 }
	require.NoError(t, testutil.CollectAndCompare(newCollector(r), strings.NewReader(`
# HELP image_update_agent_registry_request_budget_remaining Requests that remain of the hourly budget.
# TYPE image_update_agent_registry_request_budget_remaining gauge
image_update_agent_registry_request_budget_remaining 100
`), "image_update_agent_registry_request_budget_remaining"))
}

func TestEachStateIsOne(t *testing.T) {
	t.Parallel()
	for _, state := range states() {
		r := readings(func(s *status.Status, _ *record.Pace) { s.State = state })
		assert.Contains(t, scrape(t, Handler(r, busy())), fmt.Sprintf("image_update_agent_state{state=%q} 1\n", state))
	}
}

func TestSeriesAreBounded(t *testing.T) {
	t.Parallel()
	for _, n := range []int{maxSeries - 1, maxSeries, maxSeries + 1, maxSeries + 10} {
		c := newCollector(readings(func(s *status.Status, p *record.Pace) {
			p.Waits = map[string]record.Wait{}
			for i := range n {
				at := noon.Add(time.Duration(i) * time.Second)
				name := fmt.Sprintf("%04d.example.com", i)
				p.Waits[name] = record.Wait{Until: at}
				s.Sources = append(s.Sources, status.SourceStatus{Repository: name + "/app", Failures: i, LastSuccess: &at})
				s.Releases = append(s.Releases, status.ReleaseStatus{Image: name})
			}
		}))
		assert.Equal(t, min(n, maxSeries), testutil.CollectAndCount(c, "image_update_agent_release_info"))
		for name, values := range map[string]struct{ last, rest float64 }{
			"image_update_agent_registry_wait_seconds":                 {maxSeries - 1, maxSeries + 9},
			"image_update_agent_source_failures":                       {maxSeries - 1, 10*maxSeries + 45},
			"image_update_agent_source_last_success_timestamp_seconds": {seconds(noon) + maxSeries - 1, seconds(noon) + maxSeries},
		} {
			series := seriesOf(t, c, name)
			assert.Len(t, series, min(n, maxSeries+1), name)
			if n == maxSeries+10 {
				assert.InDelta(t, values.rest, series[other], 0, name)
				delete(series, other)
				for of, value := range series {
					assert.LessOrEqual(t, value, values.last, of)
				}
			}
		}
	}
}

// seriesOf returns the values of a metric with one label, by that label.
func seriesOf(t *testing.T, c prometheus.Collector, name string) map[string]float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(c))
	families, err := registry.Gather()
	require.NoError(t, err)
	series := map[string]float64{}
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, m := range family.GetMetric() {
			series[m.GetLabel()[0].GetValue()] = m.GetGauge().GetValue()
		}
	}
	return series
}

// Names come from outside: none may end a line, or the scrape.
func TestNamesFromOutside(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 10*maxLabel)
	r := readings(func(s *status.Status, p *record.Pace) {
		s.Sources = []status.SourceStatus{{Repository: "a\"\n} 1\nevil 1"}, {Repository: "\xff\xfe"}, {Repository: long}, {Repository: long + "y"}}
		p.Waits = map[string]record.Wait{"\xc3\x28": {Until: noon}, "": {Until: noon}}
	})
	text := scrape(t, Handler(r, busy()))
	assert.NotContains(t, text, "\nevil")
	assert.Contains(t, text, `image_update_agent_source_failures{repository="a\"\n} 1\nevil 1"} 0`)
	for line := range strings.Lines(text) {
		assert.Less(t, len(line), 2*maxLabel)
	}
}

func scrape(t *testing.T, h http.Handler) string {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	require.Equal(t, http.StatusOK, w.Code, w.Body)
	return w.Body.String()
}

func TestHandler(t *testing.T) {
	t.Parallel()
	text := scrape(t, Handler(full(), busy()))
	for line := range strings.Lines(text) {
		assert.Contains(t, line, "image_update_agent_", "nothing of the runtime, the process or the scrape")
	}

	// More than two scrapes at once are refused.
	r, under, end := full(), make(chan struct{}, maxScrape), make(chan struct{})
	st := r.Status
	r.Status = func() status.Status {
		under <- struct{}{}
		<-end
		return st()
	}
	h := Handler(r, busy())
	var group sync.WaitGroup
	for range maxScrape {
		group.Go(func() { assert.Equal(t, text, scrape(t, h)) })
	}
	for range maxScrape {
		<-under
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	assert.Equal(t, http.StatusServiceUnavailable, w.Code)
	close(end)
	group.Wait()
}

// The page, the alerts and the dashboard name only metrics that exist, and the manual page has every cause of a failed
// poll.
func TestDocumentation(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("../../../docs/metrics.md")
	require.NoError(t, err)
	rules, err := os.ReadFile("../../../packaging/prometheus/image-update-agent.rules.yml")
	require.NoError(t, err)
	dashboard, err := os.ReadFile("../../../packaging/grafana/image-update-agent.json")
	require.NoError(t, err)
	all := names(t)
	for _, text := range []string{string(data), string(rules), string(dashboard)} {
		for _, name := range regexp.MustCompile(namespace+`\w+`).FindAllString(text, -1) {
			assert.True(t, all[name], name)
		}
	}
	causes, err := os.ReadFile("../../../docs/man/image-update-agent-json.5.md")
	require.NoError(t, err)
	for _, cause := range []release.Cause{
		release.CauseTimeout, release.CauseDNS, release.CauseRefused, release.CauseTLS, release.CauseAuth, release.CauseNotFound,
		release.CauseRateLimited, release.CauseServerError, release.CauseNoRegistry, release.CauseUnasked,
		release.CauseOther,
	} {
		assert.Contains(t, string(causes), "`"+string(cause)+"`")
	}
}
