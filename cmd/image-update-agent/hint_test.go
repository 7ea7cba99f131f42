// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/internal/base/nodefile"
	"github.com/kubic-project/image-update-agent/internal/face/api"
	"github.com/kubic-project/image-update-agent/internal/face/cli"
)

// Who has just typed a verb learns nothing from its name.
func TestNoHintNamesTheVerbThatWasTyped(t *testing.T) {
	t.Parallel()
	anyError := errors.New("cause")
	for err, verbs := range map[error][]string{ // no verbs: all
		errApproved: nil, fs.ErrPermission: nil, api.ErrBusy: nil, api.ErrNoDaemon: nil, anyError: nil, context.Canceled: nil,
		configError{anyError}: nil, cli.Usage(anyError): nil,
		plan.ErrUnknownImage:                         {"apply", "rollback", "hold", "resume", "history"},
		&api.Error{Kind: api.KindMoved}:              {"apply"},
		leftError{interruption{syscall.SIGINT}, nil}: {"check", "apply", "rollback"},
	} {
		hinted := 0
		eachVerb((&app{}).command(), func(verb *cobra.Command) {
			if len(verbs) > 0 && !slices.Contains(verbs, verb.Name()) {
				return
			}
			text := hint(verb, err)
			assert.NotContains(t, text+" ", "`"+verb.CommandPath()+"` ", "%s: %v", verb.CommandPath(), err)
			if text != "" {
				hinted++
			}
		})
		assert.Equal(t, !errors.Is(err, context.Canceled), hinted > 0, err)
	}
}

// A lock alone shows no daemon.
func TestADaemonIsNamedWhereOneAnswers(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	lib := filepath.Join(root, "var/lib/image-update-agent")
	require.NoError(t, os.MkdirAll(lib, 0o755))
	unlock, err := nodefile.Lock(t.Context(), filepath.Join(lib, "lock"), 0)
	require.NoError(t, err)
	defer unlock()
	code, _, errs := ends(t, "run", "--once", "--root", root)
	assert.Equal(t, exitFailed, code)
	assert.Contains(t, errs, fmt.Sprintf("error: state: %s/lock: locked by process %d\n", lib, os.Getpid()))
	assert.Contains(t, errs, "hint: no daemon answers; `fuser -v "+lib+"/lock` names the process that has the lock\n")
}

// A verb in a list is one of the program, with its groups.
func TestTheVerbsOfHintsExist(t *testing.T) {
	t.Parallel()
	var all []string
	eachVerb((&app{}).command(), func(verb *cobra.Command) { all = append(all, nameOf(verb)) })
	assert.Subset(t, all, slices.Concat(busVerbs, wholeNode))
	for _, name := range busVerbs {
		assert.Contains(t, rootHint(verbNamed(name)), "image-update-agent-dbus(5)")
	}
	assert.NotContains(t, rootHint(verbNamed("config check")), "D-Bus")
}

// verbNamed returns a verb by its name with its groups.
func verbNamed(name string) (found *cobra.Command) {
	eachVerb((&app{}).command(), func(verb *cobra.Command) {
		if nameOf(verb) == name {
			found = verb
		}
	})
	return found
}

// What was not written was not shown.
func TestAFullDiskIsNoSuccess(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for _, args := range [][]string{
		{"--help"},
		{"help", "apply"},
		{"lock"},
		{"version"},
		{"config", "check"},
		{"config", "show"},
		{"local-registry", "enable", "docker.io"},
		{"tags", "parse", "1.2"},
	} {
		var errs bytes.Buffer
		code := execute(t.Context(), append(args, "--root", root), streams{out: full{}, err: &errs})
		assert.Equal(t, exitFailed, code, args)
		assert.Contains(t, errs.String(), "error: no space left on device\n", args)
	}
}

// full is a file on a full disk.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

func eachVerb(cmd *cobra.Command, visit func(*cobra.Command)) {
	for _, verb := range cmd.Commands() {
		visit(verb)
		eachVerb(verb, visit)
	}
}

// The help shows what a person needs each day first, and every verb in a group.
func TestTheVerbsAreGrouped(t *testing.T) {
	t.Parallel()
	root := (&app{}).command()
	groups := map[string]int{}
	for _, verb := range root.Commands() {
		if !verb.Hidden {
			groups[verb.GroupID]++
		}
	}
	assert.Equal(t, map[string]int{"daily": 9, "node": 6, "tools": 6}, groups)
	assert.Regexp(t, `(?s)\nDaily Commands:\n  apply .*\nNode Commands:\n  catalog .*\nTools:\n  completion `, does(t, "--help"))
}
