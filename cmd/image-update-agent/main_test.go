// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sync/errgroup"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/agent/agenttest"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/internal/face/api"
	"github.com/kubic-project/image-update-agent/internal/node/state"
	"github.com/kubic-project/image-update-agent/tags"
)

// TestMain makes the program itself a command of the scripts.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"image-update-agent": main})
}

// TestScripts runs the stories of the command line. None of them needs a
// containerd; those that do are in the e2e module.
func TestScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script", RequireExplicitExec: false,
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){"daemon": startDaemon, "exits": exits},
	})
}

// exits runs a command that must end with that code: `exits 3 image-update-agent resume velum`.
func exits(ts *testscript.TestScript, _ bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	code := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		ended, ok := errors.AsType[*exec.ExitError](err)
		if !ok {
			ts.Fatalf("%v", err)
		}
		code = ended.ExitCode()
	}
	if code != want {
		ts.Fatalf("exit %d, want %d", code, want)
	}
}

// startDaemon has a daemon with a node of fakes serve below a root directory:
// `daemon node`. Its pod velum.yaml runs 4.0.0-rev1, and rev2 is published.
func startDaemon(ts *testscript.TestScript, _ bool, args []string) {
	run, lib := ts.MkAbs(args[0]+"/run/image-update-agent"), ts.MkAbs(args[0]+"/var/lib/image-update-agent")
	ts.Check(os.MkdirAll(run, 0o755))
	ts.Check(os.MkdirAll(lib, 0o755))
	const velum = "registry.suse.com/caasp/v4/velum"
	world := agenttest.NewWorld()
	world.Policy.Rule = func(string) policy.Rule { return policy.Rule{Updates: tags.Revision} }
	world.Registry.Release(velum, "4.0.0", 1, "1.1")
	manifest := "apiVersion: v1\nkind: Pod\nmetadata: {name: velum}\nspec:\n  containers:\n  - name: velum\n" +
		"    image: " + velum + ":4.0.0-rev1\n    imagePullPolicy: Always\n"
	world.Node.PutTemplate("velum.yaml", []byte(manifest))
	world.Node.PutPodManifest("velum.yaml", []byte(manifest))
	world.Node.Sync()
	world.Registry.Release(velum, "4.0.0", 2, "1.1")

	log := slog.New(slog.DiscardHandler)
	a := world.Agent()
	a.Now, a.Recorder = time.Now, state.New(lib, run, log)
	loop := agent.NewLoop(a, deaf{}, 0, 0, "a machine")
	ctx, end := context.WithCancel(context.Background())
	group := errgroup.Group{}
	group.Go(func() error { return loop.Run(ctx) })
	ts.Defer(func() { end(); ts.Check(group.Wait()) })
	for name, readOnly := range map[string]bool{"agent.sock": false, "status.sock": true} {
		server, err := api.Listen(ctx, filepath.Join(run, name), readOnly, loop, log)
		ts.Check(err)
		group.Go(server.Serve)
		ts.Defer(func() { ts.Check(server.Close()) })
	}
}

// deaf is a service manager that does not listen.
type deaf struct{}

func (deaf) Status(string) {}
func (deaf) Heartbeat()    {}
