// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/face/api"
	"github.com/kubic-project/image-update-agent/internal/face/statuspage"
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

// hostileDaemon answers with hostile texts.
type hostileDaemon struct{}

func (hostileDaemon) Status() status.Status { return hostileStatus() }

func (d hostileDaemon) ReleaseLock(ctx context.Context, hear func(status.Progress)) (status.Status, error) {
	return d.Check(ctx, hear)
}

func (d hostileDaemon) EnableLocalRegistry(ctx context.Context, _ string, _ bool) (status.Status, error) {
	return d.Check(ctx, nil)
}

func (d hostileDaemon) DisableLocalRegistry(ctx context.Context, _ string) (status.Status, error) {
	return d.Check(ctx, nil)
}

func (d hostileDaemon) TryLock(ctx context.Context, hear func(status.Progress)) (status.Status, error) {
	return d.Check(ctx, hear)
}

func (d hostileDaemon) ForgetCatalog(ctx context.Context, hear func(status.Progress)) (status.Status, error) {
	return d.Check(ctx, hear)
}

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
	run := filepath.Join(root, "run/image-update-agent")
	require.NoError(t, os.MkdirAll(run, 0o755))
	for name, readOnly := range map[string]bool{"agent.sock": false, "status.sock": true} {
		server, err := api.Listen(t.Context(), filepath.Join(run, name), readOnly, hostileDaemon{}, slog.New(slog.DiscardHandler))
		require.NoError(t, err)
		served := make(chan error, 1)
		go func() { served <- server.Serve() }()
		t.Cleanup(func() {
			assert.NoError(t, server.Close())
			assert.NoError(t, <-served)
		})
	}
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
			var out, errs bytes.Buffer
			execute(t.Context(), append(append(args, "--root", root), more...), streams{in: strings.NewReader(""), out: &out, err: &errs})
			what := strings.Join(append(args, more...), " ")
			assertShown(t, out.String(), what)
			assertShown(t, errs.String(), what)
			assert.NotEmpty(t, out.String()+errs.String(), what)
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
