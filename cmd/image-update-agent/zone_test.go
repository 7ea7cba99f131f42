// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"regexp"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent"
)

// kolkata is half an hour beside the zones that a mistake would give.
func kolkata() *time.Location { return time.FixedZone("IST", 5*3600+1800) }

// aTime begins as every time does that a text of ours may have.
var aTime = regexp.MustCompile(`\d{4}-\d\d-\d\d(.\d\d:\d\d.{0,7})?`)

func assertOneZone(t *testing.T, text, name string) {
	t.Helper()
	for _, at := range aTime.FindAllString(text, -1) {
		assert.Regexp(t, `^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d IST$`, at, name)
	}
}

func TestEveryPageHasItsTimesInOneZone(t *testing.T) {
	t.Parallel()
	for name, s := range pages() {
		assertOneZone(t, pageOf(t, s, 0, noon.In(kolkata()), false), name)
	}
	s := pages()["held"]
	s.PodManifests[1].Holds[0] = agent.Hold{Name: agent.HoldRefused, Reason: "x"}
	s.Images[1].Notes = []string{"staging begins at 2026-11-21T13:00:00Z"}
	s.Images[1].Error = "x509: certificate has expired: current time 2026-11-21T11:00:00Z is after 2026-11-20T23:59:59Z"
	text := pageOf(t, s, 0, noon.In(kolkata()), false)
	assertOneZone(t, text, "notes")
	assert.Contains(t, text, "no changes before the holidays, until 2027-01-07 05:30:00 IST\n")
	assert.Contains(t, text, "staging begins at 2026-11-21 18:30:00 IST\n")
	assert.Contains(t, text, "is after 2026-11-21 05:29:59 IST\n", "others' words, too")
}

// What the other verbs print for people; programs get it as it was.
func TestEveryTextHasItsTimesInOneZone(t *testing.T) {
	t.Parallel()
	const until, shown = "velum: tests, until 2027-01-07T00:00:00Z", "velum: tests, until 2027-01-07 05:30:00 IST"
	verbs := map[string]func(*app) error{
		"plan": func(a *app) error {
			return a.printPlan(viewOf(agent.Plan{Pods: []agent.PodPlan{{
				File: "velum.yaml", Holds: []agent.Hold{{Name: agent.HoldAsked, Reason: until}},
			}}}))
		},
		"apply": func(a *app) error {
			return a.printOutcomes(viewsOf([]agent.Outcome{{PodManifest: "velum.yaml", Result: agent.ResultHeld, Reason: until}}, nil), "")
		},
		"render": func(a *app) error {
			return a.printBoot([]agent.BootStep{{Step: agent.Step{File: "velum.yaml"}, Reason: until}})
		},
		"doctor": func(a *app) error {
			if a.output == "json" {
				return a.printJSON(warn("daemon", until, ""))
			}
			return a.page().findings([]finding{warn("daemon", until, "")})
		},
		"status": func(a *app) error {
			return a.printStatus(agent.Status{State: agent.StateFailed, Since: noon, Reason: until})
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
		errors.New(until):             shown,
		usageError{errors.New(until)}: until, // as it was written
	} {
		var out bytes.Buffer
		a := newApp(streams{out: &out, err: &out})
		a.zone = kolkata()
		a.explain(&cobra.Command{Use: "hold"}, err)
		assert.Contains(t, out.String(), "error: "+want+"\n")
	}
}

func TestOnlyTimesAreShownOtherwise(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                               "",
		"2026-11-21T11:00:00Z":           "2026-11-21 16:30:00 IST",
		"(2026-11-21T11:00:00.123456Z);": "(2026-11-21 16:30:00 IST);",
		"2026-11-22T02:00:00+01:00, 2026-11-22T02:00:00Z": "2026-11-22 06:30:00 IST, 2026-11-22 07:30:00 IST",
		"until 9998-12-31T23:59:59Z: x":                   "until 9999-01-01 05:29:59 IST: x",
		"2026-11-21":                                      "2026-11-21",
		"2026-11-21T11:00:00":                             "2026-11-21T11:00:00",
		"2026-13-21T11:00:00Z":                            "2026-13-21T11:00:00Z",
		"12026-11-21T11:00:00Z":                           "12026-11-21T11:00:00Z",
		"grün 4.0.0-rev1-build1.3 T11:00:00Z":             "grün 4.0.0-rev1-build1.3 T11:00:00Z",
	} {
		assert.Equal(t, want, inZone(text, kolkata()))
	}
}

func FuzzInZone(f *testing.F) {
	f.Add("until 2026-11-21T11:00:00Z: x")
	f.Add("2026-11-22T02:00:00.+01:00")
	f.Fuzz(func(t *testing.T, text string) {
		once := inZone(text, kolkata())
		assert.Equal(t, once, inZone(once, kolkata()), "nothing is left to be shown otherwise")
	})
}
