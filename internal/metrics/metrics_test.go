// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// readings are those of a node with nothing to tell; edit adds to it.
func readings(edit func(*agent.Status, *agent.Pace)) Readings {
	var s agent.Status
	var p agent.Pace
	s.State = agent.StateCurrent
	edit(&s, &p)
	return Readings{
		Requests: func() map[string]uint64 { return map[string]uint64{"metadata": 12, "token": 3, "pull": 0} },
		Pace:     func() agent.Pace { return p },
		PerHour:  func() int { return 0 },
		Status:   func() agent.Status { return s },
		Now:      func() time.Time { return noon },
	}
}

func full() Readings {
	check, success := noon.Add(-time.Hour), noon.Add(-90*time.Second)
	r := readings(func(s *agent.Status, p *agent.Pace) {
		s.State, s.LastCheck = agent.StateStale, &check
		s.Sources = []agent.SourceStatus{
			{Repository: "registry.suse.com/caasp/v4/velum", LastSuccess: &success},
			{Repository: "registry.suse.com/sles12/mariadb", Failures: 4},
		}
		p.Budget = agent.Budget{PerHour: 60, Left: 7, At: noon}
		p.Waits = map[string]agent.Wait{
			"registry.suse.com": {Until: noon.Add(90 * time.Second), Status: 429}, "mirror:5000": {Until: noon.Add(-time.Second), Status: 503},
		}
	})
	r.PerHour = func() int { return 60 }
	return r
}

func TestAllNumbers(t *testing.T) {
	t.Parallel()
	require.NoError(t, testutil.CollectAndCompare(newCollector(full()), strings.NewReader(`
# HELP image_update_agent_last_check_timestamp_seconds When the sources were last asked.
# TYPE image_update_agent_last_check_timestamp_seconds gauge
image_update_agent_last_check_timestamp_seconds 1.7952588e+09
# HELP image_update_agent_registry_request_budget Requests that this node may send to registries in an hour.
# TYPE image_update_agent_registry_request_budget gauge
image_update_agent_registry_request_budget 60
# HELP image_update_agent_registry_request_budget_left Requests that are left of the budget.
# TYPE image_update_agent_registry_request_budget_left gauge
image_update_agent_registry_request_budget_left 7
# HELP image_update_agent_registry_requests_total Requests sent to registries and token servers.
# TYPE image_update_agent_registry_requests_total counter
image_update_agent_registry_requests_total{kind="metadata"} 12
image_update_agent_registry_requests_total{kind="pull"} 0
image_update_agent_registry_requests_total{kind="token"} 3
# HELP image_update_agent_registry_wait_seconds For how long a host still wants to be left alone.
# TYPE image_update_agent_registry_wait_seconds gauge
image_update_agent_registry_wait_seconds{host="mirror:5000"} 0
image_update_agent_registry_wait_seconds{host="registry.suse.com"} 90
# HELP image_update_agent_source_failures Polls of a repository that failed in a row.
# TYPE image_update_agent_source_failures gauge
image_update_agent_source_failures{repository="registry.suse.com/caasp/v4/velum"} 0
image_update_agent_source_failures{repository="registry.suse.com/sles12/mariadb"} 4
# HELP image_update_agent_source_last_success_timestamp_seconds When a repository was last answered for; not there before the first time.
# TYPE image_update_agent_source_last_success_timestamp_seconds gauge
image_update_agent_source_last_success_timestamp_seconds{repository="registry.suse.com/caasp/v4/velum"} 1.79526231e+09
# HELP image_update_agent_state 1 for the state that the node is in, 0 for the others.
# TYPE image_update_agent_state gauge
image_update_agent_state{state="applying"} 0
image_update_agent_state{state="current"} 0
image_update_agent_state{state="failed"} 0
image_update_agent_state{state="held"} 0
image_update_agent_state{state="staged"} 0
image_update_agent_state{state="stale"} 1
`)))
}

func TestNamesAreAsPrometheusWantsThem(t *testing.T) {
	t.Parallel()
	problems, err := testutil.CollectAndLint(newCollector(full()))
	require.NoError(t, err)
	assert.Equal(t, []promlint.Problem(nil), problems)
}

// What there is nothing to say of is not there, instead of being zero.
func TestNothingToSay(t *testing.T) {
	t.Parallel()
	c := newCollector(readings(func(*agent.Status, *agent.Pace) {}))
	assert.Equal(t, 3, testutil.CollectAndCount(c, "image_update_agent_registry_requests_total"))
	assert.Equal(t, 6, testutil.CollectAndCount(c, "image_update_agent_state"))
	assert.Equal(t, 9, testutil.CollectAndCount(c))
}

func TestAFullBudget(t *testing.T) {
	t.Parallel()
	r := readings(func(*agent.Status, *agent.Pace) {})
	r.PerHour = func() int { return 100 }
	require.NoError(t, testutil.CollectAndCompare(newCollector(r), strings.NewReader(`
# HELP image_update_agent_registry_request_budget_left Requests that are left of the budget.
# TYPE image_update_agent_registry_request_budget_left gauge
image_update_agent_registry_request_budget_left 100
`), "image_update_agent_registry_request_budget_left"))
}

func TestEachStateIsOne(t *testing.T) {
	t.Parallel()
	for _, state := range states() {
		r := readings(func(s *agent.Status, _ *agent.Pace) { s.State = state })
		assert.Contains(t, scrape(t, Handler(r)), fmt.Sprintf("image_update_agent_state{state=%q} 1\n", state))
	}
}

func TestSeriesAreBounded(t *testing.T) {
	t.Parallel()
	for _, n := range []int{maxSeries - 1, maxSeries, maxSeries + 1, maxSeries + 10} {
		c := newCollector(readings(func(s *agent.Status, p *agent.Pace) {
			p.Waits = map[string]agent.Wait{}
			for i := range n {
				at := noon.Add(time.Duration(i) * time.Second)
				name := fmt.Sprintf("%04d.example.com", i)
				p.Waits[name] = agent.Wait{Until: at}
				s.Sources = append(s.Sources, agent.SourceStatus{Repository: name + "/app", Failures: i, LastSuccess: &at})
			}
		}))
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

// seriesOf are the values of a metric with one label, by that.
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

// Names come from the world: none may end a line, or the scrape.
func TestNamesFromOutside(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 10*maxLabel)
	r := readings(func(s *agent.Status, p *agent.Pace) {
		s.Sources = []agent.SourceStatus{{Repository: "a\"\n} 1\nevil 1"}, {Repository: "\xff\xfe"}, {Repository: long}, {Repository: long + "y"}}
		p.Waits = map[string]agent.Wait{"\xc3\x28": {Until: noon}, "": {Until: noon}}
	})
	text := scrape(t, Handler(r))
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
	text := scrape(t, Handler(full()))
	for line := range strings.Lines(text) {
		assert.Contains(t, line, "image_update_agent_", "nothing of the runtime, the process or the scrape")
	}

	// More than two at once are told to come again.
	r, under, end := full(), make(chan struct{}, maxScrape), make(chan struct{})
	status := r.Status
	r.Status = func() agent.Status {
		under <- struct{}{}
		<-end
		return status()
	}
	h := Handler(r)
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

// Who raises alarms on a number finds it in the documentation, and finds there
// nothing else.
func TestDocumentation(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("../../docs/metrics.md")
	require.NoError(t, err)
	var documented, there []string
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, "| `image_update_agent_"); ok {
			name, _, _ := strings.Cut(rest, "`")
			name, _, _ = strings.Cut(name, "{")
			documented = append(documented, "image_update_agent_"+name)
		}
	}
	for line := range strings.Lines(scrape(t, Handler(full()))) {
		if rest, ok := strings.CutPrefix(line, "# HELP "); ok {
			name, _, _ := strings.Cut(rest, " ")
			there = append(there, name)
		}
	}
	assert.ElementsMatch(t, there, documented)
}
