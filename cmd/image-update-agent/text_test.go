// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/internal/config"
)

const caasp = "registry.suse.com/caasp/v4/"

// planned is a plan with an offer, refusals, notes and an image of the
// configuration.
func planned() agent.Plan {
	release := func(name, tag string) agent.Release {
		return agent.Release{Repository: caasp + name, Tag: tag, Long: tag + "-build1.1", Digest: digest.FromString(name + tag)}
	}
	ask := func(name, tag string) agent.Want {
		return agent.Want{Ask: agent.Question{Repository: caasp + name, Tag: tag}}
	}
	return agent.Plan{
		Pods: []agent.PodPlan{
			{File: "velum.yaml", Change: "revision", Images: []agent.ImagePlan{
				{
					Want: ask("velum", "4.0.0-rev1"), Target: release("velum", "4.0.0-rev2"), From: "4.0.0-rev1-build1.1",
					Change: "revision", Offer: agent.Offer{
						Host: "m1:5000", Mirror: true, Refused: []agent.Refusal{
							{Tag: "4.1.0-rev1", Rule: agent.RuleUpdates, Reason: "minor is more than revision"},
							{Tag: "4.0.0-rev3-build1.1", Rule: agent.RuleDeny, Reason: "matches *-rev3*"},
						},
					},
				},
				{},
			}},
			{File: "etcd.yaml", Images: []agent.ImagePlan{{
				Want: ask("etcd", "3.4"), Target: release("etcd", "3.4"), Staged: true,
				Offer: agent.Offer{Host: "registry.suse.com", Notes: []string{"its label says \x1b[2J"}, Err: errors.New("remembered")},
			}}},
		},
		Tracked: []agent.ImagePlan{{
			Offer: agent.Offer{Question: agent.Question{Repository: caasp + "pause"}}, Target: release("pause", "3.2"),
		}},
		Steps: []agent.Step{{Do: agent.StepKeep, File: "velum.yaml"}},
	}
}

const plannedText = `velum.yaml                          revision
  registry.suse.com/caasp/v4/velum  revision: 4.0.0-rev1-build1.1 -> 4.0.0-rev2-build1.1, from mirror m1:5000
                                    4.1.0-rev1           refused by updates: minor is more than revision
                                    4.0.0-rev3-build1.1  refused by deny: matches *-rev3*
etcd.yaml                           nothing to change
  registry.suse.com/caasp/v4/etcd   current: 3.4-build1.1, from upstream registry.suse.com
                                    its label says �[2J
                                    error: remembered
configuration                       images beside the pod manifests
  registry.suse.com/caasp/v4/pause  current: 3.2-build1.1

Steps:
  1. keep velum.yaml
`

func TestPlanForPeople(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	require.NoError(t, writePlan(&out, viewOf(planned())))
	assert.Equal(t, plannedText, out.String())
}

// lastLines are what a plan ends with, by what it knows.
var lastLines = map[string]agent.Plan{
	"\nNo steps: the node is as it should be.\n": {Pods: []agent.PodPlan{{File: "etcd.yaml", Holds: []agent.Hold{
		{Name: agent.HoldUnmanaged, Reason: "not listed"},
	}}}},
	"  held: unmanaged  not listed\n\nNo steps: what stands in the way is named above.\n": {Pods: []agent.PodPlan{{
		File: "etcd.yaml", Change: "rebuild", Ready: true, Holds: []agent.Hold{{Name: agent.HoldUnmanaged, Reason: "not listed"}},
	}}},
	"\nNo steps: what stands in the way is named above.\n": {Pods: []agent.PodPlan{{File: "velum.yaml", Holds: []agent.Hold{
		{Name: agent.HoldWithheld, Reason: "not asked yet"},
	}}}},
	"\nNo steps by itself.\nWaiting for `image-update-agent apply`: etcd.yaml, velum.yaml\n": {Pods: []agent.PodPlan{
		{File: "etcd.yaml", Change: "rebuild", Ready: true}, {File: "velum.yaml", Change: "revision", Ready: true},
	}},
	"\nSteps:\n  1. keep velum.yaml\nWaiting for `image-update-agent apply`: velum.yaml\n": {
		Pods:  []agent.PodPlan{{File: "velum.yaml", Change: "revision", Ready: true}},
		Steps: []agent.Step{{Do: agent.StepKeep, File: "velum.yaml"}},
	},
	"velum.yaml  not known\n  error     line 7\n\nNo steps: what stands in the way is named above.\n": {Pods: []agent.PodPlan{
		{File: "velum.yaml", Err: errors.New("line 7")},
	}},
}

func TestHowAPlanEnds(t *testing.T) {
	t.Parallel()
	for want, p := range lastLines {
		var out bytes.Buffer
		require.NoError(t, writePlan(&out, viewOf(p)))
		assert.True(t, strings.HasSuffix(out.String(), want), "%s\nwant at its end:\n%s", out.String(), want)
	}
}

func TestPlanForPrograms(t *testing.T) {
	t.Parallel()
	data, err := json.Marshal(viewOf(planned()))
	require.NoError(t, err)
	var got struct {
		PodManifests []struct{ Images []map[string]any }
		Images       []map[string]any
	}
	require.NoError(t, json.Unmarshal(data, &got))
	velum, etcd := got.PodManifests[0].Images, got.PodManifests[1].Images
	require.Len(t, velum, 1, "what is left alone is no image of the plan")
	assert.Equal(t, "m1:5000", velum[0]["host"])
	assert.Equal(t, true, velum[0]["mirror"])
	assert.Equal(t, map[string]any{
		"tag": "4.1.0-rev1", "rule": "updates", "reason": "minor is more than revision",
	}, velum[0]["refused"].([]any)[0])
	assert.Equal(t, false, etcd[0]["mirror"])
	assert.Equal(t, []any{}, etcd[0]["refused"], "none is an empty list")
	require.Len(t, got.Images, 1)
	assert.Equal(t, caasp+"pause", got.Images[0]["image"])
	assert.Contains(t, string(must(json.Marshal(viewOf(agent.Plan{})))), `"images":[]`)
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// A script sees by the exit code of a check how the node is.
func TestHowACheckEnds(t *testing.T) {
	t.Parallel()
	for state, code := range map[agent.State]int{
		agent.StateCurrent: exitDone, agent.StateStaged: exitDone, agent.StateApplying: exitDone,
		agent.StateFailed: exitFailed, agent.StateStale: exitFailed, agent.StateUnchecked: exitFailed, agent.StateHeld: exitHeld,
	} {
		assert.Equal(t, code, (&app{}).explain(nil, endOf(state)), state)
	}
}

// lineOf are the lines of a status for people that begin so.
func lineOf(t *testing.T, s agent.Status, begin string) []string {
	t.Helper()
	var found []string
	for line := range strings.Lines(pageOf(t, s, 0, time.Unix(0, 0), false)) {
		if text, ok := strings.CutPrefix(line, begin); ok {
			found = append(found, strings.TrimSpace(text))
		}
	}
	return found
}

func TestStatusSaysWhoAnswered(t *testing.T) {
	t.Parallel()
	s := agent.Status{Images: []agent.ImageStatus{
		{Image: "a", Host: "m1:5000", Mirror: true},
		{Image: "a", Host: "m1:5000", Mirror: true, Container: "second"},
		{Image: "b", Host: "m1:5000", Mirror: true},
		{Image: "c", Host: "registry.suse.com"},
		{Image: "d"},
	}}
	assert.Equal(t, []string{"mirror m1:5000 (2 images), upstream registry.suse.com (1 image)"}, lineOf(t, s, "Answered by:"))
	assert.Empty(t, lineOf(t, agent.Status{Images: []agent.ImageStatus{{Image: "d"}}}, "Answered by:"))
}

// budgets are what is left of 100 requests, and whether a person is told.
var budgets = map[int]bool{100: false, 10: false, 9: true, 0: true}

func TestStatusTellsOfABudgetThatIsNearlySpent(t *testing.T) {
	t.Parallel()
	for left, told := range budgets {
		got := lineOf(t, agent.Status{Budget: &agent.BudgetStatus{PerHour: 100, Left: left}}, "Requests:")
		assert.Equal(t, told, len(got) == 1, "%d left: %v", left, got)
	}
	s := agent.Status{Budget: &agent.BudgetStatus{PerHour: 3600, Left: 12}}
	assert.Equal(t, []string{"12 of 3600 left in this hour (requestsPerHour)"}, lineOf(t, s, "Requests:"))
}

func TestStatusHasEachNoteOnce(t *testing.T) {
	t.Parallel()
	both := []string{"x is newer by name than y", "its label says\x07 z"}
	s := agent.Status{Images: []agent.ImageStatus{
		{PodManifest: "a.yaml", Notes: both, Error: "away"},
		{PodManifest: "a.yaml", Container: "second", Notes: both[:1]},
		{PodManifest: "b.yaml", Notes: both[:1]},
	}}
	assert.Equal(t, []string{"away", both[0], "its label says� z"}, lineOf(t, s, "  a.yaml:"))
	assert.Equal(t, []string{both[0]}, lineOf(t, s, "  b.yaml:"))
}

// ends are values of --until on 20 November 2026, 12:00, and when each hold
// ends; "" is refused.
var ends = map[string]string{
	"":                          "0001-01-01T00:00:00Z",
	"72h":                       "2026-11-23T12:00:00Z",
	"1h30m":                     "2026-11-20T13:30:00Z",
	"7d":                        "2026-11-27T12:00:00Z",
	"3660d":                     "2036-11-27T12:00:00Z",
	"2026-11-20T13:00:00+01:00": "",
	"2026-11-20T13:00:01+01:00": "2026-11-20T12:00:01Z",
	"2026-11-19":                "",
	"0":                         "",
	"0d":                        "",
	"-1d":                       "",
	"3661d":                     "",
	"99999999999999999999d":     "",
	"d":                         "",
	"1w":                        "",
	"7":                         "",
	"next week":                 "",
}

func TestHoldEnd(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, time.November, 20, 12, 0, 0, 0, time.UTC)
	for text, want := range ends {
		got, err := holdEnd(text, now)
		if want == "" {
			assert.ErrorContains(t, err, "--until", text)
			continue
		}
		require.NoError(t, err, text)
		assert.Equal(t, want, got.UTC().Format(time.RFC3339), text)
	}
	tomorrow := now.Local().AddDate(0, 0, 1).Format(time.DateOnly)
	got, err := holdEnd(tomorrow, now)
	require.NoError(t, err)
	assert.Equal(t, must(config.ParseTime(tomorrow)), got, "a date is its midnight here, as in the configuration")
}

func TestImageNames(t *testing.T) {
	t.Parallel()
	s := agent.Status{
		Images:       []agent.ImageStatus{{Image: caasp + "velum"}, {Image: caasp + "etcd"}, {Image: caasp + "velum"}},
		PodManifests: []agent.PodStatus{{PodManifest: "velum.yaml"}},
	}
	assert.Equal(t, []string{"etcd", caasp + "etcd", caasp + "velum", "velum", "velum.yaml"}, imageNames(s, nil, ""))
	assert.Equal(t, []string{"velum.yaml"}, imageNames(s, []string{"velum"}, "v"))
	assert.Empty(t, imageNames(s, nil, "x"))
}
