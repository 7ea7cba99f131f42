// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubic-project/image-update-agent/internal/face/cli"
)

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
	case isCanceled(err):
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
	if _, is := errors.AsType[timeout](why); is {
		return exitTimeout
	}
	return code
}
