// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/internal/catalog/census"
)

// Each line of a result says what became of the release, also if the channel offers a newer one.
func TestResultSaysWhatBecameOfARelease(t *testing.T) {
	t.Parallel()
	const older, newer = "4.0.0-rev1-build1.1", "4.0.0-rev1-build1.2"
	s := newShop(t)
	s.push("velum", older, newer)
	s.does("init", "stage", "prod", "--unsigned")
	s.does("add", "stage", "HOST/velum:"+older)
	s.does("promote", "stage", "prod", "velum", "--rollout", "48h")
	s.does("add", "stage", "HOST/velum:"+newer)
	s.does("promote", "stage", "prod", "velum", "--rollout", "48h")

	out := s.does("rollout", "prod", "--pause")
	assert.Regexp(t, `(?m)^~ HOST/velum:`+newer+` +rollout paused$`, out)
	assert.Regexp(t, `(?m)^~ HOST/velum:`+older+` +rollout paused; older than `+newer+`, which the channel offers too$`, out)
	out = s.does("rollout", "prod", "--over", "12h")
	assert.Regexp(t, `(?m)^~ HOST/velum:`+newer+` +rollout over 12 hours, paused$`, out)
	out = s.does("rollout", "prod", "velum:"+older, "--resume")
	assert.Regexp(t, `(?m)^~ HOST/velum:`+older+` +rollout over 12 hours; older than `, out)
	s.does("rollout", "prod", "--now")

	s.does("add", "stage", "HOST/velum:"+newer, "--set", "caasp")
	out = s.does("promote", "stage", "prod", "velum")
	assert.Regexp(t, `(?m)^~ HOST/velum:`+newer+` +now in set "caasp"$`, out, "it had no rollout that could end")
}

// nodes are what a Prometheus knows of ten nodes, if any has reported.
type nodes struct {
	running, failed, lost int
	catalogs, shared      []string
	nothing               bool
}

// answer returns the API's data for a query of package fleet; query is empty for the names of all nodes.
func (n nodes) answer(query string) any {
	type object = map[string]any
	result := []object{}
	add := func(label, name, state string) {
		result = append(result, object{"metric": object{label: name, "state": state}, "value": []any{1, "1"}})
	}
	names := []string{}
	for i := range 10 {
		switch state := "staged"; {
		case n.nothing:
		case query == "" || strings.HasPrefix(query, "(group by (instance, state)") && i < n.lost:
			names = append(names, fmt.Sprint("n", i))
			add("instance", fmt.Sprint("n", i), "running")
		case strings.HasPrefix(query, "group by (instance, state)") && i >= n.lost:
			if i < n.lost+n.failed {
				state = "failed"
			} else if i < n.lost+n.failed+n.running {
				state = "running"
			}
			add("instance", fmt.Sprint("n", i), state)
		}
	}
	switch {
	case query == "":
		return names
	case query == "vector(time())":
		add("", "", "")
	case strings.HasPrefix(query, "max by (instance)"):
		for _, name := range n.shared {
			add("instance", name, "")
		}
	case strings.HasPrefix(query, "group by (catalog)"):
		for _, name := range n.catalogs {
			add("catalog", name, "")
		}
	}
	return object{"resultType": "vector", "result": result}
}

// serves starts a Prometheus that knows what is returns.
func serves(t *testing.T, is func(asked int) *nodes) string {
	t.Helper()
	var asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := is(int(asked.Add(1)))
		if n == nil {
			http.Error(w, "overloaded", http.StatusServiceUnavailable)
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"status": "success", "data": n.answer(r.PostFormValue("query"))})
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// rollsOut returns a shop with a rollout of velum in prod, and its nodes.
func rollsOut(t *testing.T, hours string) (*shop, nodes) {
	t.Helper()
	s := newShop(t)
	s.push("caasp/velum", "4.0.0-rev1-build1.1")
	s.does("init", "stage", "prod", "--expires", "30d", "--unsigned")
	s.does("add", "stage", "HOST/caasp/velum:4.0.0-rev1-build1.1")
	s.does("promote", "stage", "prod", "velum", "--rollout", hours)
	return s, nodes{}
}

func TestFleet(t *testing.T) {
	t.Parallel()
	s, is := rollsOut(t, "48h")
	s.ends(exitUsage, "--prometheus URL or the variable IMAGE_CATALOG_PROMETHEUS is missing", "fleet", "prod")
	s.ends(exitUsage, "want a URL", "fleet", "prod", "--prometheus", "prometheus:9090")

	is.running = 4
	assert.Equal(t, "HOST/caasp/velum:4.0.0-rev1-build1.1: 4 of 10 nodes run it, 6 staged\n",
		s.does("fleet", "prod", "--prometheus", serves(t, func(int) *nodes { return &is })))
	is.failed, is.lost = 2, 1
	url := serves(t, func(int) *nodes { return &is })
	out, _, code := s.run("fleet", "prod", "velum:4.0.0-rev1-build1.1", "--prometheus", url)
	assert.Equal(t, exitFailed, code)
	assert.Contains(t, out, "4 of 10 nodes run it, 2 failed (n1, n2), 1 lost (n0), 3 staged")
	out, _, code = s.run("fleet", "prod", "velum", "--prometheus", url, "--output", "json")
	assert.Equal(t, exitFailed, code)
	var list []census.Standing
	require.NoError(t, json.Unmarshal([]byte(out), &list))
	assert.Equal(t, []string{"n1", "n2"}, list[0].FailedNodes)

	s.ends(exitFailed, "velum:9.9: channel prod does not list it", "fleet", "prod", "velum:9.9", "velum:4.0.0-rev1-build1.1", "--prometheus", url)
	s.ends(exitFailed, "channel stage offers no release", "fleet", "stage@1", "--prometheus", url)
	s.ends(exitFailed, "prometheus: status 503", "fleet", "prod", "--prometheus", serves(t, func(int) *nodes { return nil }))
}

// A gate of a CI job passes only with an answer.
func TestFleetOfWhichNothingIsKnown(t *testing.T) {
	t.Parallel()
	s, _ := rollsOut(t, "48h")
	of := s.host + "/catalog:prod"
	for name, c := range map[string]struct {
		is   nodes
		want string
	}{
		"another server":   {nodes{nothing: true}, "hint: this Prometheus has no metrics of image-update-agent"},
		"no follower":      {nodes{nothing: true, catalogs: []string{""}}, "hint: the nodes of this Prometheus follow no catalog"},
		"another catalog":  {nodes{nothing: true, catalogs: []string{"", "c:stage"}}, "hint: nodes of this Prometheus follow c:stage\n"},
		"a mirror's image": {nodes{nothing: true, catalogs: []string{of}}, "hint: nodes report other images"},
		"all are silent":   {nodes{lost: 10}, "no node reports the image"},
		"a shared name":    {nodes{running: 10, shared: []string{"n3"}}, "several machines share a label instance (n3)"},
	} {
		out, errs, code := s.run("fleet", "prod", "--prometheus", serves(t, func(int) *nodes { return &c.is }))
		assert.Equal(t, exitFailed, code, name)
		assert.NotContains(t, out, "0 of 0", name)
		assert.Contains(t, errs, c.want, name)
		_, errs, code = s.run("fleet", "prod", "--output", "json", "--prometheus", serves(t, func(int) *nodes { return &c.is }))
		assert.Equal(t, exitFailed, code, name)
		assert.Contains(t, errs, c.want, name)
	}
}

func TestWatchPausesARolloutThatFails(t *testing.T) {
	t.Parallel()
	s, is := rollsOut(t, "48h")
	is.running = 4
	url := serves(t, func(asked int) *nodes {
		now := is
		if asked > 20 { // four rounds
			now.failed = 2
		}
		return &now
	})
	_, errs, code := s.run("rollout", "prod", "velum", "--watch", "--every", "1ms", "--max-failed", "1", "--prometheus", url)
	assert.Equal(t, exitFailed, code)
	assert.Contains(t, errs, "Z HOST/caasp/velum:4.0.0-rev1-build1.1: 4 of 10 nodes run it, 6 staged\n")
	assert.Contains(t, errs, "error: paused: HOST/caasp/velum:4.0.0-rev1-build1.1: 4 of 10 nodes run it, 2 failed (n0, n1)")
	assert.Contains(t, s.does("rollout", "prod"), "paused")
	assert.Contains(t, s.does("log", "prod"), "2 failed (n0, n1)")

	// Who watches a rollout that is paused already is told that there is nothing to pause.
	s.ends(exitFailed, "its rollout is over or paused already", "rollout", "prod", "velum", "--watch", "--every", "1ms", "--prometheus", url)
}

func TestWatchEndsWithTheRollout(t *testing.T) {
	t.Parallel()
	s, is := rollsOut(t, "48h")
	url := serves(t, func(asked int) *nodes {
		now := is
		now.running = min((asked-1)/5, 10) // five queries a round
		if asked == 11 {
			s.does("rollout", "prod", "velum", "--now")
		}
		return &now
	})
	out := s.does("rollout", "prod", "--watch", "--every", "1ms", "--nodes", "90", "--prometheus", url)
	assert.Contains(t, out, ": 9 of 10 nodes run it")
	s.ends(exitNothing, "", "rollout", "prod", "--watch", "--prometheus", url)
}

func TestWatchEndsWithAWithdrawal(t *testing.T) {
	t.Parallel()
	s, is := rollsOut(t, "48h")
	is.running = 1
	url := serves(t, func(asked int) *nodes {
		if asked == 11 {
			s.does("withdraw", "prod", "velum:4.0.0-rev1-build1.1", "--reason", "bsc#1")
		}
		return &is
	})
	s.ends(exitFailed, "was withdrawn: bsc#1; its rollout is over or paused already", "rollout", "prod", "--watch", "--every", "1ms", "--nodes", "90", "--prometheus", url)
}

// An interrupted watch would leave a rollout that nobody watches.
func TestInterruptedWatchPauses(t *testing.T) {
	t.Parallel()
	s, is := rollsOut(t, "48h")
	is.running = 1
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	url := serves(t, func(asked int) *nodes {
		if asked == 11 {
			interrupt()
		}
		return &is
	})
	var o, e bytes.Buffer
	code := execute(ctx, []string{
		"rollout", "prod", "--watch", "--every", "1ms", "--prometheus", url, "--catalog", s.host + "/catalog",
	}, streams{in: strings.NewReader(""), out: &o, err: &e})
	assert.Equal(t, exitFailed, code)
	assert.Contains(t, e.String(), "paused: the watch was stopped")
	assert.Contains(t, s.does("rollout", "prod"), "paused")
}

func TestWatchHasItsFlags(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	for args, want := range map[string]string{
		"--every 1m":                 "--every requires --watch",
		"--prometheus https://p":     "--prometheus requires --watch",
		"--watch --pause":            "--watch excludes --pause",
		"--watch --out x":            "--watch excludes --pause",
		"--watch --nodes 101":        "--nodes from 0 to 100",
		"--watch --every 0s":         "--every and --max-failed must be above 0",
		"--watch --max-failed -1":    "--every and --max-failed must be above 0",
		"--watch":                    "IMAGE_CATALOG_PROMETHEUS is missing",
		"--watch --prometheus p:909": "want a URL",
	} {
		s.ends(exitUsage, want, append([]string{"rollout", "prod"}, strings.Fields(args)...)...)
	}
}

// A rollout goes on without an answer only for a short time.
func TestWatchJudges(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	var log bytes.Buffer
	a := newApp(streams{in: strings.NewReader(""), out: &log, err: &log})
	a.now = func() time.Time { return at }
	w := watch{app: a, answered: at}
	away := errors.New("prometheus: status 503")
	well := []census.Standing{{Image: "velum", Tag: "1", Nodes: 10, Running: 3}}
	assert.Empty(t, w.judge(well, nil))
	at = at.Add(patience)
	assert.Empty(t, w.judge(nil, away))
	assert.Empty(t, w.judge(nil, away))
	at = at.Add(time.Second)
	assert.Equal(t, "no answer for 5m0s: prometheus: status 503", w.judge(nil, away))
	assert.Empty(t, w.judge(well, nil))
	at = at.Add(patience)
	assert.Empty(t, w.judge(nil, away), "it has answered since")
	at = at.Add(1)
	assert.Contains(t, w.judge([]census.Standing{{Image: "velum", Tag: "1", Nodes: 2, Silent: 2}}, nil), "no node reports")
	assert.Equal(t, 2, strings.Count(log.String(), "3 of 10 nodes run it\n"), "each change once")
}
