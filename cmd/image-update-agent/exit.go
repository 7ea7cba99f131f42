// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/agent/localregistry"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/base/nodefile"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
	"github.com/kubic-project/image-update-agent/internal/face/api"
	"github.com/kubic-project/image-update-agent/internal/face/cli"
	"github.com/kubic-project/image-update-agent/internal/face/filerender"
	"github.com/kubic-project/image-update-agent/internal/face/terminal"
	"github.com/kubic-project/image-update-agent/internal/node/config"
)

// The exit codes are an interface, documented in the man page.
const (
	exitDone    = 0 // done
	exitFailed  = 1 // it did not work
	exitUsage   = 2 // wrong arguments or configuration
	exitNothing = 3 // there was nothing to do
	exitHeld    = 4 // a named reason speaks against it now
	exitTimeout = 5 // --timeout has passed
	// 130 and 143: SIGINT and SIGTERM have ended it, see interruption.
)

// configError is a mistake in the configuration.
type configError struct{ error }

func (e configError) Unwrap() error { return e.error }

// endOf is how `check` and `run --once` end: as the node is afterwards.
func endOf(s status.State) error {
	switch s {
	case status.StateFailed, status.StateStale, status.StateUnchecked:
		return cli.Exit(exitFailed)
	case status.StateHeld:
		return cli.Exit(exitHeld)
	default:
		return nil
	}
}

// explain prints an error with the advice that only this edge can give, and
// returns the exit code.
func (a *app) explain(verb *cobra.Command, err error) int {
	if out, is := a.out.(*outside.Writer); is && err == nil {
		err = out.Err() // lines are written without a look at each
	}
	if a.invalid != nil {
		if errors.Is(err, api.ErrNoDaemon) {
			err = a.invalid // what a person has to mend first
		} else {
			fmt.Fprintf(a.err, "image-update-agent: warning: the configuration is not valid; the daemon neither starts nor "+
				"reloads with it:\n%s\n", outside.Mask(a.invalid.Error()))
		}
	}
	if err == nil {
		return exitDone
	}
	if e, ok := errors.AsType[cli.ExitError](err); ok {
		return e.Code
	}
	text := outside.Mask(err.Error())
	if !isUsage(err) { // what a person has written is shown as it was
		text = terminal.InZone(text, a.zone)
	}
	fmt.Fprintf(a.err, "image-update-agent: error: %s\n", text)
	if h := hint(verb, err); h != "" {
		fmt.Fprintf(a.err, "image-update-agent: hint: %s\n", h)
	}
	switch {
	case isUsage(err):
		return exitUsage
	case errors.Is(err, release.ErrHeld):
		return exitHeld
	default:
		return codeOf(err, exitFailed)
	}
}

func isUsage(err error) bool {
	return cli.IsUsage(err) || isConfig(err) || hasKind(err, api.KindInvalidArgs) ||
		errors.Is(err, plan.ErrUnknownImage) || errors.Is(err, localregistry.ErrNoRegistry)
}

// hasKind reports whether the daemon has answered with an error of a kind.
func hasKind(err error, kind string) bool {
	e, is := errors.AsType[*api.Error](err)
	return is && e.Kind == kind
}

func isA[E error](err error) bool {
	_, is := errors.AsType[E](err)
	return is
}

func isConfig(err error) bool { return isA[configError](err) }

// hint says what to do next. It names another verb, a key or a page, not the verb that was just typed.
func hint(verb *cobra.Command, err error) string {
	locked, isLocked := errors.AsType[lockedError](err)
	missing, isMissing := errors.AsType[filerender.MissingTagsError](err)
	switch {
	case isMissing:
		return "give the tags with --set " + strings.Join(missing.Repositories, "=TAG --set ") + "=TAG"
	case errors.Is(err, plan.ErrUnknownImage):
		return "`image-update-agent status` lists the images and pod manifests"
	case hasKind(err, api.KindMoved):
		return "`image-update-agent plan` shows the current offer"
	case hasKind(err, api.KindCanceled):
		return ""
	case isLocked:
		return lockedHint(locked)
	case errors.Is(err, errApproved):
		return "let the daemon finish the apply first: it needs the registry"
	case errors.Is(err, fs.ErrPermission):
		return rootHint(verb)
	case isA[sourceError](err):
		return sourceHint(err)
	case errors.Is(err, api.ErrBusy):
		return "try again in a few seconds; `ss -xp` lists the connections"
	case errors.Is(err, api.ErrNoDaemon):
		return noDaemonHint(nameOf(verb))
	case errors.Is(err, agent.ErrNoLock), errors.Is(err, agent.ErrNoCatalog):
		return "image-update-agent.yaml(5) describes the setting"
	case isConfig(err) && errors.Is(err, fs.ErrNotExist):
		return ""
	case isConfig(err):
		return configHint(verb, err)
	case isUsage(err):
		return "add --help for arguments and examples, or see image-update-agent(8)"
	case isA[leftError](err):
		return "the daemon finishes what it has begun; `image-update-agent status` shows it"
	case errors.Is(err, context.Canceled):
		return ""
	case slices.Contains(wholeNode, nameOf(verb)):
		return "`image-update-agent doctor` checks the node"
	default:
		return ""
	}
}

// lockedError is a *nodefile.LockedError of the state, and whether a daemon answered then.
type lockedError struct {
	error
	daemon bool
}

func (e lockedError) Unwrap() error { return e.error }

func lockedHint(e lockedError) string {
	if e.daemon {
		return "a daemon is running: use `image-update-agent check`, or stop the daemon first"
	}
	locked, _ := errors.AsType[*nodefile.LockedError](e)
	return "no daemon answers; `fuser -v " + locked.Path + "` names the process that has the lock"
}

// configHint returns the hint for mistakes in the configuration. The name of a drop-in and a variable of the
// environment have no line.
func configHint(verb *cobra.Command, err error) string {
	text := "image-update-agent.yaml(5) describes the files and the environment variable"
	inLine := func(p config.Problem) bool { return p.Line > 0 }
	if slices.ContainsFunc(config.ProblemsOf(err), inLine) {
		text = "correct the key in that line; image-update-agent.yaml(5) describes every key"
	}
	if nameOf(verb) == "plan" && !verb.Flags().Changed("config") {
		text += "; plan reads the configuration as the next start or reload does, and `image-update-agent apply --all " +
			"--dry-run` asks a running daemon, whose configuration may be older"
	}
	return text
}

// rootHint is for users without the permission for a verb.
func rootHint(verb *cobra.Command) string {
	const start = "run it as root"
	switch {
	case slices.Contains(busVerbs, nameOf(verb)):
		return start + ", or call it over D-Bus, where polkit decides: see image-update-agent-dbus(5)"
	case nameOf(verb) == "plan":
		return start + "; `image-update-agent status` needs no root"
	default:
		return start
	}
}

// nameOf returns a verb with its groups: `check` and `config check` are two verbs.
func nameOf(verb *cobra.Command) string {
	return strings.TrimPrefix(verb.CommandPath(), "image-update-agent ")
}

// busVerbs are the verbs that the bus has methods for.
var busVerbs = []string{"check", "apply", "rollback", "hold", "resume", "catalog forget", "lock release"}

// wholeNode are the verbs whose work needs all of the node.
var wholeNode = []string{"run", "check", "plan", "apply", "rollback", "hold", "resume"}

// noDaemonHint is for verbs that ask the daemon. A cycle without one can take the place
// of check and status only: it applies, holds and reloads nothing.
func noDaemonHint(verb string) string {
	const start = "start the daemon: systemctl start image-update-agent"
	if verb == "check" || verb == "status" {
		return start + "; or use `image-update-agent run --once`"
	}
	return start
}

// interruption is the signal that ended a verb.
type interruption struct{ signal syscall.Signal }

func (i interruption) Error() string { return i.signal.String() + " signal received" }

// code is the exit code that a shell gives to a program that the signal has ended.
func (i interruption) code() int { return 128 + int(i.signal) }

// timeout is the end of --timeout.
type timeout struct{ after time.Duration }

func (t timeout) Error() string { return fmt.Sprintf("timed out after %s", t.after) }

// leftError ends a verb that stopped waiting for the daemon.
type leftError struct {
	why error // interruption or timeout
	err error // what the daemon has answered; nil: nothing
}

func (e leftError) Error() string {
	if e.err == nil {
		return e.why.Error()
	}
	return e.why.Error() + ": " + e.err.Error()
}

func (e leftError) Unwrap() []error { return []error{e.why, e.err} }

// withSignals returns a context that SIGINT and SIGTERM end.
func withSignals(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		select {
		case s := <-signals:
			if s, is := s.(syscall.Signal); is {
				cancel(interruption{s})
			}
		case <-ctx.Done():
		}
	}()
	return ctx, func() { signal.Stop(signals); cancel(nil) }
}

// waiting are the flags of a verb that waits for the daemon.
type waiting struct{ timeout time.Duration }

// addTo adds --timeout to a verb.
func (w *waiting) addTo(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().DurationVar(&w.timeout, "timeout", 0,
		"stop waiting after this time, as in 90s or 10m, with exit status 5; 0 waits until the end")
	return cmd
}

// limit returns a context that --timeout ends.
func (w *waiting) limit(ctx context.Context) (context.Context, context.CancelFunc, error) {
	switch {
	case w.timeout < 0:
		return nil, nil, cli.Usage(fmt.Errorf("--timeout %s: want a positive time, as in 90s or 10m", w.timeout))
	case w.timeout == 0:
		ctx, cancel := context.WithCancel(ctx)
		return ctx, cancel, nil
	default:
		ctx, cancel := context.WithTimeoutCause(ctx, w.timeout, timeout{w.timeout})
		return ctx, cancel, nil
	}
}

// leave returns the error of a verb whose context has ended. Other errors stay as they are.
func leave(ctx context.Context, err error) error {
	switch {
	case err == nil || ctx.Err() == nil:
		return err
	case hasKind(err, api.KindCanceled):
		return leftError{context.Cause(ctx), err}
	case errors.Is(err, ctx.Err()) || errors.Is(err, context.Cause(ctx)): // net/http returns the cause
		return leftError{context.Cause(ctx), nil}
	default:
		return err
	}
}

// codeOf returns the exit code for why a verb stopped waiting; code if it did not.
func codeOf(why error, code int) int {
	if i, is := errors.AsType[interruption](why); is {
		return i.code()
	}
	if isA[timeout](why) {
		return exitTimeout
	}
	return code
}
