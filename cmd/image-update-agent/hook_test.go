// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/agenttest"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/face/hook"
	"github.com/kubic-project/image-update-agent/internal/node/config"
	"github.com/kubic-project/image-update-agent/internal/node/state"
)

// hooked is a host with a Salt minion and a program of the admin's, which keep what
// they are given, and an agent that leaves word.
type hooked struct {
	t       *testing.T
	root    string
	publish func(status.Status) error
}

func newHooked(t *testing.T, settings string) hooked {
	t.Helper()
	h := hooked{t: t, root: t.TempDir()}
	h.program("usr/bin/salt-call", `echo "$@" >>"$(dirname "$0")/said"`)
	h.program("opt/tell", `cat >>"$(dirname "$0")/said"`)
	h.configure(settings)
	run, lib := filepath.Join(h.root, "run/image-update-agent"), filepath.Join(h.root, "var/lib/image-update-agent")
	log := slog.New(slog.DiscardHandler)
	recorder := hook.Recorder{Recorder: state.New(lib, run, log), Announce: hook.New(lib, run).Announce, Log: log}
	h.publish = func(s status.Status) error { return recorder.Publish(t.Context(), s) }
	return h
}

func (h hooked) write(name, text string, mode os.FileMode) {
	h.t.Helper()
	path := filepath.Join(h.root, name)
	require.NoError(h.t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(h.t, os.WriteFile(path, []byte(text), mode))
}

func (h hooked) program(name, text string) {
	h.t.Helper()
	require.NoError(h.t, os.MkdirAll(filepath.Dir(h.path(name)), 0o755))
	agenttest.WriteProgram(h.t, h.path(name), "#!/bin/sh\n"+text+"\n")
}

func (h hooked) configure(text string) {
	h.t.Helper()
	h.write("etc/image-update-agent/config.yaml", text, 0o644)
}
func (h hooked) path(name string) string { return filepath.Join(h.root, name) }
func (h hooked) isDue() bool {
	_, err := os.Stat(h.path("run/image-update-agent/hook.due"))
	return err == nil
}

func (h hooked) status(state, offered string) {
	h.t.Helper()
	require.NoError(h.t, h.publish(offering(state, offered)))
}

// offering is a node that is offered a release of velum.
func offering(state, offered string) status.Status {
	return status.Status{State: status.State(state), Images: []status.ImageStatus{{
		Image: "registry.suse.com/caasp/v4/velum", Container: "velum", PodManifest: "velum.yaml", Change: "rebuild", Staged: true,
		Running: &status.Named{Tag: "1", Digest: digest.FromString("1")},
		Offered: &status.Named{Tag: offered, Digest: digest.FromString(offered)},
	}}}
}

// run runs the verb, and gives what it said.
func (h hooked) run(code int) string {
	h.t.Helper()
	got, out, errs := ends(h.t, "hook", "--root", h.root)
	require.Equal(h.t, code, got, errs)
	return out + errs
}

// said is what a program has kept since the last time.
func (h hooked) said(name string) string {
	h.t.Helper()
	path := filepath.Join(filepath.Dir(h.path(name)), "said")
	text, err := os.ReadFile(path)
	if os.IsNotExist(err) {
		return ""
	}
	require.NoError(h.t, err)
	require.NoError(h.t, os.Remove(path))
	return string(text)
}

func (h hooked) delivered() hook.Change {
	h.t.Helper()
	var c hook.Change
	text := h.said("opt/tell")
	require.NoError(h.t, json.Unmarshal([]byte(text), &c), text)
	return c
}

const both = "hooks: {saltRefresh: true, exec: /opt/tell}\n"

func TestHookWithNothingConfigured(t *testing.T) {
	t.Parallel()
	h := newHooked(t, "")
	h.status("staged", "2")
	require.True(t, h.isDue())
	assert.Empty(t, h.run(exitDone))
	assert.False(t, h.isDue(), "or the path unit begins anew")
	assert.Empty(t, h.said("usr/bin/salt-call")+h.said("opt/tell"))
}

func TestHookRunsBothOncePerChange(t *testing.T) {
	t.Parallel()
	h := newHooked(t, both)
	h.status("staged", "2")
	h.run(exitDone)
	assert.False(t, h.isDue())
	assert.Equal(t, "saltutil.refresh_grains\n", h.said("usr/bin/salt-call"))
	c := h.delivered()
	assert.Equal(t, "staged", c.State)
	assert.Empty(t, c.Was)
	require.Len(t, c.Staged, 1)
	assert.Equal(t, "2", c.Staged[0].To)

	h.status("staged", "2")
	assert.False(t, h.isDue(), "nothing new")
	h.run(exitDone)
	assert.Equal(t, "saltutil.refresh_grains\n", h.said("usr/bin/salt-call"), "by hand, say, it does no harm")
	assert.Empty(t, h.said("opt/tell"), "and there is no change")
}

// A webhook gets the change where neither program nor Salt is configured. Its URL and its token are in files that only root
// may read, and in nothing that is said.
func TestHookSendsAWebhook(t *testing.T) {
	t.Parallel()
	var answer atomic.Int64
	answer.Store(http.StatusOK)
	got := make(chan string, 8)
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- r.URL.Path + " " + r.Header.Get("Authorization") + " " + string(body)
		w.WriteHeader(int(answer.Load()))
	}))
	t.Cleanup(server.Close)
	h := newHooked(t, "nodeName: node-1\nhooks: {webhooks: [{name: chat, urlFile: /etc/chat.url, tokenFile: /etc/chat.token, "+
		"format: text, events: [staged], ca: /etc/chat.pem}]}\n")
	h.write("etc/chat.url", server.URL+"/services/s3cr3t\n", 0o600)
	h.write("etc/chat.token", "t0k3n\n", 0o600)
	h.write("etc/chat.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})), 0o644)
	h.status("staged", "2")
	require.True(t, h.isDue())
	said := h.run(exitDone)
	assert.Equal(t, `/services/s3cr3t Bearer t0k3n {"text":"node-1: staged\n`+
		`staged: registry.suse.com/caasp/v4/velum 1 to 2 (rebuild) in velum.yaml"}`, <-got)
	assert.Contains(t, said, "change delivered")
	assert.Contains(t, said, "webhook=chat")

	answer.Store(http.StatusNotFound)
	h.status("staged", "3")
	said += h.run(exitFailed)
	<-got
	assert.Contains(t, said, "webhook chat: 127.0.0.1:")
	assert.Contains(t, said, "404 Not Found")
	assert.FileExists(t, h.path("var/lib/image-update-agent/hook-retry.json"), "the daemon requests another run")
	answer.Store(http.StatusOK)
	said += h.run(exitDone)
	assert.Contains(t, <-got, "1 to 3")
	assert.NoFileExists(t, h.path("var/lib/image-update-agent/hook-retry.json"))

	require.NoError(t, h.publish(status.Status{State: "current"}))
	said += h.run(exitDone)
	assert.Empty(t, got, "another state is not among its events")
	assert.NotContains(t, said, "s3cr3t")
	assert.NotContains(t, said, "t0k3n")
	require.NoError(t, os.Chmod(h.path("etc/chat.url"), 0o644))
	h.status("staged", "4")
	assert.Contains(t, h.run(exitFailed), "others may read it")
}

// What comes while a hook runs makes one more run, and what a hook failed with is
// delivered again with what came since.
func TestHookMissesNothing(t *testing.T) {
	t.Parallel()
	h := newHooked(t, both)
	h.program("opt/tell", `echo no luck; exit 7`)
	h.status("staged", "2")
	said := h.run(exitFailed)
	assert.Contains(t, said, "no luck\n")
	assert.Contains(t, said, "opt/tell: exit status 7")
	assert.False(t, h.isDue(), "it is not tried again by itself")
	assert.NotEmpty(t, h.said("usr/bin/salt-call"), "the other one is run all the same")

	h.program("opt/tell", `cat >>"$(dirname "$0")/said"; cat "$0.wait"`)
	require.NoError(t, syscall.Mkfifo(h.path("opt/tell.wait"), 0o600))
	h.status("held", "3")
	ended := make(chan string)
	go func() { ended <- h.run(exitDone) }()
	running, err := os.OpenFile(h.path("opt/tell.wait"), os.O_WRONLY, 0) // waits for who reads it
	require.NoError(t, err)
	assert.False(t, h.isDue())
	h.status("staged", "4")
	assert.True(t, h.isDue(), "the path unit sees it when the service has ended")
	require.NoError(t, running.Close())
	<-ended
	h.program("opt/tell", `cat >>"$(dirname "$0")/said"`)
	c := h.delivered()
	assert.Equal(t, "3", c.Staged[0].To)
	assert.Empty(t, c.Was, "the first one was never delivered")
	h.run(exitDone)
	c = h.delivered()
	assert.Equal(t, "4", c.Staged[0].To)
	assert.Equal(t, "held", c.Was)
}

func TestHooksHaveTheTimeOfTheConfiguration(t *testing.T) {
	t.Parallel()
	h := newHooked(t, "hooks: {saltRefresh: true, timeout: 1s}\n")
	h.program("usr/bin/salt-call", `exec sleep 1000`)
	assert.Contains(t, h.run(exitFailed), "usr/bin/salt-call: did not end within 1s")
}

// The master gets each change once: an event with state and count, and again only where it did not get it.
func TestHookSendsAnEvent(t *testing.T) {
	t.Parallel()
	h := newHooked(t, "hooks: {saltEvent: true}\n")
	h.status("staged", "2")
	h.run(exitDone)
	assert.Equal(t, "event.send image-update/changed state=staged was= count=1\n", h.said("usr/bin/salt-call"))
	h.run(exitDone)
	assert.Empty(t, h.said("usr/bin/salt-call"), "there is no change")

	h.program("usr/bin/salt-call", "exit 1")
	h.status("held", "3")
	assert.Contains(t, h.run(exitFailed), "usr/bin/salt-call: exit status 1")
	h.program("usr/bin/salt-call", `echo "$@" >>"$(dirname "$0")/said"`)
	h.run(exitDone)
	assert.Equal(t, "event.send image-update/changed state=held was=staged count=1\n", h.said("usr/bin/salt-call"))

	h.configure("hooks: {saltRefresh: true, saltEvent: true, exec: /opt/tell}\n")
	h.status("staged", "4")
	h.run(exitDone)
	assert.Equal(t, "saltutil.refresh_grains\nevent.send image-update/changed state=staged was=held count=1\n", h.said("usr/bin/salt-call"))
	assert.Equal(t, "held", h.delivered().Was)
}

// A misspelt key keeps hooks from being run, and the path unit from turning in a
// circle.
func TestHookWithABrokenConfiguration(t *testing.T) {
	t.Parallel()
	h := newHooked(t, both)
	h.status("staged", "2")
	h.configure("hook: {saltRefresh: true}\n")
	assert.Contains(t, h.run(exitUsage), `"hook"`)
	assert.False(t, h.isDue())
	assert.Empty(t, h.said("usr/bin/salt-call")+h.said("opt/tell"))
}

// A grain that was held back is written without anything else having changed.
func TestAGrainThatIsWrittenIsDue(t *testing.T) {
	t.Parallel()
	for refresh, want := range map[bool]bool{true: true, false: false} {
		h := newHooked(t, "")
		h.write("etc/salt/grains", "roles: [admin]\n", 0o644)
		s := settings{root: h.root, Settings: config.Settings{
			Grains: config.Grains{Enabled: true, Path: h.path("etc/salt/grains")}, Hooks: config.Hooks{SaltRefresh: refresh},
			StateDir: h.path("var/lib/image-update-agent"), RuntimeDir: h.path("run/image-update-agent"),
		}}
		to := announcer(s, slog.New(slog.DiscardHandler))
		require.NoError(t, to.Announce(t.Context(), status.Announcement{State: "current"}))
		assert.Equal(t, want, h.isDue())
		_, err := s.outbox().Take()
		require.NoError(t, err)
		require.NoError(t, to.Announce(t.Context(), status.Announcement{State: "current"}))
		assert.False(t, h.isDue(), "nothing was written")
	}
}

// The path unit is enabled on every node, and starts nothing where no hook is configured.
func TestWordIsLeftForConfiguredHooksOnly(t *testing.T) {
	t.Parallel()
	for settings, due := range map[string]bool{"": false, both: true} {
		h := newHooked(t, settings)
		s, err := (&app{root: h.root}).settings()
		require.NoError(t, err)
		require.NoError(t, s.announce()(t.Context(), offering("staged", "2")))
		assert.Equal(t, due, h.isDue(), settings)
		assert.FileExists(t, h.path("run/image-update-agent/announcement.json"))
	}
}

// A status is published whatever becomes of hooks.
func TestAStatusIsPublishedWithoutHooks(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	dir := t.TempDir()
	h := hook.Recorder{
		Recorder: state.New(dir, dir, slog.New(slog.DiscardHandler)),
		Announce: hook.New(dir, filepath.Join(dir, "status.json")).Announce, Log: slog.New(slog.NewTextHandler(&log, nil)),
	}
	require.NoError(t, h.Publish(t.Context(), status.Status{SchemaVersion: status.StatusSchemaVersion}))
	assert.Contains(t, log.String(), "change not announced to hooks")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, h.Publish(ctx, status.Status{}), context.Canceled)
}
