// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/internal/api"
	"github.com/kubic-project/image-update-agent/internal/state"
)

// The exit codes are an interface, documented in the man page.
const (
	exitDone    = 0 // done
	exitFailed  = 1 // it did not work
	exitUsage   = 2 // wrong arguments or configuration
	exitNothing = 3 // there was nothing to do
	exitHeld    = 4 // a named reason speaks against it now
)

// usageError is a mistake in the arguments or in the configuration.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// exitError is an ending that was already told, or needs no more words.
type exitError struct{ code int }

func (e exitError) Error() string { return fmt.Sprintf("exit %d", e.code) }

// explain prints an error with the advice that only this edge can give, and
// returns the exit code.
func (a *app) explain(err error) int {
	if err == nil {
		return exitDone
	}
	if e, ok := errors.AsType[exitError](err); ok {
		return e.code
	}
	fmt.Fprintf(a.err, "image-update-agent: error: %v\n", err)
	if h := hint(err); h != "" {
		fmt.Fprintf(a.err, "image-update-agent: hint: %s\n", h)
	}
	switch {
	case isUsage(err):
		return exitUsage
	case errors.Is(err, agent.ErrHeld):
		return exitHeld
	default:
		return exitFailed
	}
}

func isUsage(err error) bool {
	_, ok := errors.AsType[usageError](err)
	return ok || errors.Is(err, agent.ErrUnknownImage)
}

// hint says what to do next.
func hint(err error) string {
	switch {
	case errors.Is(err, agent.ErrUnknownImage):
		return "`image-update-agent status` lists the images that are followed"
	case errors.Is(err, state.ErrLocked):
		return "a daemon runs already: use `image-update-agent check`, or stop it first"
	case errors.Is(err, errApproved):
		return "let the daemon or `image-update-agent run --once`, which ask the registry, finish the apply first"
	case isSource(err):
		return sourceHint(err)
	case errors.Is(err, fs.ErrPermission):
		return "this needs root"
	case errors.Is(err, api.ErrNoDaemon):
		return "start the daemon (systemctl start image-update-agent), or use `image-update-agent run --once`"
	case isUsage(err):
		return "`image-update-agent help` shows the commands, each with examples"
	default:
		return ""
	}
}
