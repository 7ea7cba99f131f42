// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/face/cli"
	"github.com/kubic-project/image-update-agent/internal/face/doctor"
	"github.com/kubic-project/image-update-agent/internal/face/statuspage"
)

const caasp = "registry.suse.com/caasp/v4/"

// A script sees by the exit code of a check how the node is.
func TestHowACheckEnds(t *testing.T) {
	t.Parallel()
	for state, code := range map[status.State]int{
		status.StateCurrent: exitDone, status.StateStaged: exitDone, status.StateApplying: exitDone,
		status.StateFailed: exitFailed, status.StateStale: exitFailed, status.StateUnchecked: exitFailed, status.StateHeld: exitHeld,
	} {
		assert.Equal(t, code, (&app{}).explain(nil, endOf(state)), state)
	}
}

// kolkata is half an hour beside the zones that a mistake would give.
func kolkata() *time.Location { return time.FixedZone("IST", 5*3600+1800) }

// What the other verbs print for people; programs get it as it was.
func TestEveryTextHasItsTimesInOneZone(t *testing.T) {
	t.Parallel()
	const until, shown = "velum: tests, until 2027-01-07T00:00:00Z", "velum: tests, until 2027-01-07 05:30:00 IST"
	verbs := map[string]func(*app) error{
		"plan": func(a *app) error {
			return a.printPlan(statuspage.ViewOf(plan.Plan{Pods: []plan.PodPlan{{
				File: "velum.yaml", Holds: []status.Hold{{Name: status.HoldRequested, Reason: until}},
			}}}))
		},
		"apply": func(a *app) error {
			return a.printOutcomes(statuspage.Outcomes([]status.Outcome{{PodManifest: "velum.yaml", Result: status.ResultHeld, Reason: until}}, nil), "")
		},
		"render": func(a *app) error {
			return a.printBoot([]plan.BootStep{{Step: plan.Step{File: "velum.yaml"}, Reason: until}})
		},
		"doctor": func(a *app) error {
			return a.printFindings([]doctor.Finding{{Check: "daemon", Detail: until}})
		},
		"status": func(a *app) error {
			return a.printStatus(status.Status{State: status.StateFailed, Since: time.Unix(0, 0), Reason: until})
		},
	}
	for verb, show := range verbs {
		for output, want := range map[string]string{"text": shown, "json": until} {
			var out bytes.Buffer
			a := newApp(streams{out: &out, err: &out})
			a.zone, a.output = kolkata(), output
			require.NoError(t, show(a), verb)
			assert.Contains(t, out.String(), want, "%s, %s", verb, output)
		}
	}
	for err, want := range map[error]string{
		errors.New(until):            shown,
		cli.Usage(errors.New(until)): until, // as it was written
	} {
		var out bytes.Buffer
		a := newApp(streams{out: &out, err: &out})
		a.zone = kolkata()
		a.explain(&cobra.Command{Use: "hold"}, err)
		assert.Contains(t, out.String(), "error: "+want+"\n")
	}
}

func TestImageNames(t *testing.T) {
	t.Parallel()
	s := status.Status{
		Images:       []status.ImageStatus{{Image: caasp + "velum"}, {Image: caasp + "etcd"}, {Image: caasp + "velum"}},
		PodManifests: []status.PodStatus{{PodManifest: "velum.yaml"}},
	}
	assert.Equal(t, []string{"etcd", caasp + "etcd", caasp + "velum", "velum", "velum.yaml"}, imageNames(s, nil, ""))
	assert.Equal(t, []string{"velum.yaml"}, imageNames(s, []string{"velum"}, "v"))
	assert.Empty(t, imageNames(s, nil, "x"))
}
