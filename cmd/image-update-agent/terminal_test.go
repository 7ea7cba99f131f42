// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/face/api"
	"github.com/kubic-project/image-update-agent/internal/face/cli"
	"github.com/kubic-project/image-update-agent/internal/face/doctor"
	"github.com/kubic-project/image-update-agent/internal/face/statuspage"
	"github.com/kubic-project/image-update-agent/internal/node/config"
)

// hostile is what a certificate, a label or a registry may say: it clears the screen, changes the title, turns what
// follows around, and is no UTF-8.
const hostile = "x\x1b[2J\x1b]0;title\x07\r\u202e\u009b31m\x7f\U000E0001\xff"

// fill makes every text of a value hostile.
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(hostile)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fill(v.Index(0))
		fill(v.Index(1))
	case reflect.Struct:
		for field, inner := range v.Fields() {
			if field.IsExported() {
				fill(inner)
			}
		}
	case reflect.Interface:
		if v.Type() == reflect.TypeFor[error]() {
			v.Set(reflect.ValueOf(errors.New(hostile)))
		}
	}
}

func hostileStatus() status.Status {
	var s status.Status
	fill(reflect.ValueOf(&s).Elem())
	s.SchemaVersion, s.State = status.StatusSchemaVersion, status.StateFailed
	for n := range s.Images {
		i := &s.Images[n]
		i.Size, i.Running.Digest, i.Offered.Digest, i.LastKnownGood.Digest = 1, "", "", ""
	}
	for n := range s.Updates {
		s.Updates[n].Digest = ""
	}
	for n := range s.Sources {
		s.Sources[n].Failures = 1
	}
	s.Sources[0].Insecure = true
	return s
}

// hostileDaemon answers with hostile texts what the verbs of these tests ask.
type hostileDaemon struct{ api.Daemon }

func (hostileDaemon) Status() status.Status { return hostileStatus() }

func (hostileDaemon) Check(_ context.Context, hear func(status.Progress)) (status.Status, error) {
	hear(status.Progress{Phase: hostile, Reference: hostile})
	return hostileStatus(), errors.New(hostile)
}

func (hostileDaemon) Apply(context.Context, agent.ApplyRequest, func(status.Progress)) ([]status.Outcome, error) {
	return []status.Outcome{{PodManifest: "velum.yaml", Change: "revision", Result: status.ResultHeld, Reason: hostile}}, nil
}

func (hostileDaemon) Rollback(context.Context, plan.Which, func(status.Progress)) ([]status.Outcome, error) {
	return nil, errors.New(hostile)
}

func (hostileDaemon) Hold(context.Context, []string, bool, string, time.Time) ([]string, error) {
	return []string{hostile}, nil
}

func (hostileDaemon) Resume(context.Context, []string, bool) ([]string, error) {
	return []string{hostile}, nil
}

// assertShown says that a terminal would show text as it is.
func assertShown(t *testing.T, text, what string) {
	t.Helper()
	assert.True(t, utf8.ValidString(text), what)
	assert.False(t, strings.ContainsFunc(text, func(r rune) bool {
		return r != '\n' && r != '\t' && !unicode.IsPrint(r)
	}), "%s: %q", what, text)
}

func TestNoVerbPrintsWhatATerminalActsOn(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	listening(t, root, hostileDaemon{}, "agent.sock", "status.sock")
	for _, args := range [][]string{
		{"status"},
		{"check"},
		{"apply"},
		{"rollback", "velum"},
		{"hold", "velum"},
		{"resume", "velum"},
		{"tags", "parse", hostile},
		{hostile},
		{"config", "show", "--config", "/" + hostile},
	} {
		for _, more := range [][]string{nil, {"--output", "json"}} {
			_, out, errs := ends(t, append(append(args, "--root", root), more...)...)
			what := strings.Join(append(args, more...), " ")
			assertShown(t, out, what)
			assertShown(t, errs, what)
			assert.NotEmpty(t, out+errs, what)
		}
	}
}

// A program gets the very text, escaped.
func TestJSONKeepsTextFromOutside(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	require.NoError(t, newApp(streams{out: &out}).printStatus(hostileStatus()))
	require.NotEmpty(t, out.String())
	out.Reset()
	a := newApp(streams{out: &out})
	a.output = "json"
	require.NoError(t, a.printStatus(hostileStatus()))
	assertShown(t, out.String(), "json")
	var got status.Status
	require.NoError(t, json.Unmarshal(out.Bytes(), &got))
	assert.Equal(t, strings.ToValidUTF8(hostile, "\ufffd"), got.Reason)
}

func TestAPlanPrintsNothingThatATerminalActsOn(t *testing.T) {
	t.Parallel()
	var v statuspage.PlanView
	fill(reflect.ValueOf(&v).Elem())
	var out bytes.Buffer
	require.NoError(t, v.Write(newApp(streams{out: &out}).out, time.UTC))
	assertShown(t, out.String(), "plan")
	assert.Contains(t, out.String(), "error")
}

// What is rendered is a file's bytes, whatever they are.
func TestADocumentIsWrittenToTheByte(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	require.NoError(t, newApp(streams{out: &out}).document([]byte(hostile)))
	assert.Equal(t, hostile, out.String())
}

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

// The journal has no password, in whichever format.
func TestTheLogHasNoSecret(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"text", "json"} {
		var out bytes.Buffer
		log := logger(&out, config.Log{Level: slog.LevelInfo, Format: format})
		log.With("url", "https://u:hunter2@host/").Warn("source does not answer",
			"err", errors.New(`parse "https://u:hunter2%zz@host": invalid URL escape "%zz"`))
		assert.Contains(t, out.String(), "@host", format)
		assert.NotContains(t, out.String(), "hunter2", format)
	}
}
