// SPDX-License-Identifier: Apache-2.0

package statuspage

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

	"github.com/kubic-project/image-update-agent/agent/follow"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/preview"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/source"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/face/terminal"
)

const caasp = "registry.suse.com/caasp/v4/"

// planned is a plan with an offer, refusals, notes and an image of the
// configuration.
func planned() plan.Plan {
	rel := func(name, tag string) release.Release {
		return release.Release{Repository: caasp + name, Tag: tag, Long: tag + "-build1.1", Digest: digest.FromString(name + tag)}
	}
	ask := func(name, tag string) follow.Want {
		return follow.Want{Ask: release.Question{Repository: caasp + name, Tag: tag}}
	}
	return plan.Plan{
		Pods: []plan.PodPlan{
			{File: "velum.yaml", Change: "revision", Images: []plan.ImagePlan{
				{
					Want: ask("velum", "4.0.0-rev1"), Target: rel("velum", "4.0.0-rev2"), Running: status.Named{Tag: "4.0.0-rev1-build1.1"},
					Change: "revision", Offer: source.Offer{Answer: record.Answer{
						Host: "m1:5000", Mirror: true, Refused: []policy.Refusal{
							{Tag: "4.1.0-rev1", Rule: policy.RuleUpdates, Reason: "minor is more than revision"},
							{Tag: "4.0.0-rev3-build1.1", Rule: policy.RuleDeny, Reason: "matches *-rev3*"},
						},
					}},
				},
				{},
			}},
			{File: "etcd.yaml", Images: []plan.ImagePlan{{
				Want: ask("etcd", "3.4"), Target: rel("etcd", "3.4"), Staged: true,
				Offer: source.Offer{
					Answer: record.Answer{Host: "registry.suse.com", Notes: []string{"its label is \x1b[2J"}}, Err: errors.New("remembered"),
				},
			}}},
		},
		Tracked: []plan.ImagePlan{{
			Offer: source.Offer{Question: release.Question{Repository: caasp + "pause"}}, Target: rel("pause", "3.2"),
		}},
		Steps: []plan.Step{{Do: plan.StepKeep, File: "velum.yaml"}},
	}
}

const plannedText = `velum.yaml                          revision
  registry.suse.com/caasp/v4/velum  revision: 4.0.0-rev1-build1.1 -> 4.0.0-rev2-build1.1, from mirror m1:5000
                                    4.1.0-rev1           refused by updates: minor is more than revision
                                    4.0.0-rev3-build1.1  refused by deny: matches *-rev3*
etcd.yaml                           no change
  registry.suse.com/caasp/v4/etcd   current: 3.4-build1.1, from upstream registry.suse.com
                                    its label is �[2J
                                    error: remembered
configuration                       images from the configuration
  registry.suse.com/caasp/v4/pause  current: 3.2-build1.1

Steps:
  1. keep velum.yaml
`

func TestPlanForPeople(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	require.NoError(t, ViewOf(planned()).Write(&out, time.UTC))
	assert.Equal(t, plannedText, out.String())
}

// lastLines are what a plan ends with, by what it knows.
var lastLines = map[string]plan.Plan{
	"\nNothing to do: everything is up to date.\n": {Pods: []plan.PodPlan{{File: "etcd.yaml", Holds: []status.Hold{
		{Name: status.HoldUnmanaged, Reason: "not listed"},
	}}}},
	"  held: unmanaged  not listed\n\nNothing to do now: the reasons are shown above.\n": {Pods: []plan.PodPlan{{
		File: "etcd.yaml", Change: "rebuild", Ready: true, Holds: []status.Hold{{Name: status.HoldUnmanaged, Reason: "not listed"}},
	}}},
	"\nNothing to do now: the reasons are shown above.\n": {Pods: []plan.PodPlan{{File: "velum.yaml", Holds: []status.Hold{
		{Name: status.HoldUnresolved, Reason: "not asked yet"},
	}}}},
	"\nNothing happens without approval.\nWaiting for `image-update-agent apply`: etcd.yaml, velum.yaml\n": {Pods: []plan.PodPlan{
		{File: "etcd.yaml", Change: "rebuild", Ready: true}, {File: "velum.yaml", Change: "revision", Ready: true},
	}},
	"\nSteps:\n  1. keep velum.yaml\nWaiting for `image-update-agent apply`: velum.yaml\n": {
		Pods:  []plan.PodPlan{{File: "velum.yaml", Change: "revision", Ready: true}},
		Steps: []plan.Step{{Do: plan.StepKeep, File: "velum.yaml"}},
	},
	"velum.yaml  unknown\n  error     line 7\n\nNothing to do now: the reasons are shown above.\n": {Pods: []plan.PodPlan{
		{File: "velum.yaml", Err: errors.New("line 7")},
	}},
}

func TestHowAPlanEnds(t *testing.T) {
	t.Parallel()
	for want, p := range lastLines {
		var out bytes.Buffer
		require.NoError(t, ViewOf(p).Write(&out, time.UTC))
		assert.True(t, strings.HasSuffix(out.String(), want), "%s\nwant at its end:\n%s", out.String(), want)
	}
}

func TestPlanForPrograms(t *testing.T) {
	t.Parallel()
	data, err := json.Marshal(ViewOf(planned()))
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
	none, err := json.Marshal(ViewOf(plan.Plan{}))
	require.NoError(t, err)
	assert.Contains(t, string(none), `"images":[]`)
}

// On a terminal that is too narrow for the table, each cell is a line.
func TestPreviewOnANarrowTerminal(t *testing.T) {
	t.Parallel()
	rows := append([][]string{{"velum.yaml"}}, rowsOfPreview(preview.Image{
		Container: "velum", Reference: caasp + "velum:4.0.0-rev1", Repository: caasp + "velum",
		Offered: "4.0.0-rev2", Change: "revision",
		NotAllowed: []policy.Refusal{{Tag: "4.1.0", Key: "updates: minor"}, {Tag: "5.0.0", Key: "max"}},
	})...)
	rows = append(rows, rowsOfPreview(preview.Image{Container: "db", Reference: "mariadb:10.0", Repository: "mariadb"})...)
	var out bytes.Buffer
	p := terminal.NewPage(&out, noon)
	p.Width = 40
	require.False(t, p.Fits(rows))
	stackedPreview(p, rows)
	require.NoError(t, p.Flush())
	assert.Equal(t, `velum.yaml
  velum  registry.suse.com/caasp/v4/velum
    runs       4.0.0-rev1
    would get  4.0.0-rev2 (revision)
    newer      4.1.0 (updates: minor)
    newer      5.0.0 (max)
  db  mariadb
    runs       10.0
`, out.String())
}
