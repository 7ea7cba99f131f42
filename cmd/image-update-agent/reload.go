// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/face/api"
	"github.com/kubic-project/image-update-agent/internal/face/cli"
	"github.com/kubic-project/image-update-agent/internal/face/terminal"
	"github.com/kubic-project/image-update-agent/systemd"
)

// reloadCommand is for the unit, and hidden: admins have systemctl.
func (a *app) reloadCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "reload",
		Short: "Make the daemon reload its configuration",
		Long: `reload makes the daemon read its configuration again, and waits until the new settings
are in effect; if a pod is being restarted, until that has ended. A configuration with a
mistake changes nothing: reload prints the mistake and exits with an error.

` + "`systemctl reload image-update-agent`" + ` runs it.`,
		Example: `  image-update-agent reload`,
		Hidden:  true,
		Args:    cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			daemon, err := a.daemonClient()
			if err != nil {
				return err
			}
			if err = daemon.Reload(cmd.Context()); !errors.Is(err, api.ErrNoDaemon) {
				a.invalid = nil // the daemon says it
			}
			return err
		},
	}
}

// reloader reads the configuration anew, one request after the other: SIGHUP, or one of
// the acting socket, which gets the result.
type reloader struct {
	app   *app
	began settings // with which the daemon was started
	hup   <-chan os.Signal
	asked chan chan<- error
	take  func(*wiring) // goes on with what the new configuration makes
}

// ask is for the acting socket.
func (r *reloader) ask(ctx context.Context) error {
	answer := make(chan error, 1)
	select {
	case r.asked <- answer:
	case <-ctx.Done():
		return fmt.Errorf("waiting for the previous reload: %w", ctx.Err())
	}
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return fmt.Errorf("waiting for the running cycle: %w", ctx.Err())
	}
}

// run serves requests until ctx ends. A bad configuration is logged and changes
// nothing.
func (r *reloader) run(ctx context.Context, loop *agent.Loop, n *systemd.Notifier, log *slog.Logger) {
	for {
		reply := func(error) {}
		select {
		case <-ctx.Done():
			return
		case <-r.hup:
		case answer := <-r.asked:
			reply = func(err error) { answer <- err }
		}
		n.Reloading()
		next, err := r.reload(ctx, loop, log)
		if err != nil {
			log.Error("cannot reload the configuration", "err", err)
		} else {
			log.Info("configuration reloaded")
			r.take(next)
		}
		n.Ready(terminal.InZone(status.Sentence(loop.Status()), time.Local))
		reply(err) // after READY=1: systemd takes what the command ends with for the whole reload's result
	}
}

func (r *reloader) reload(ctx context.Context, loop *agent.Loop, log *slog.Logger) (*wiring, error) {
	s, err := r.app.settings()
	if err != nil {
		return nil, err
	}
	// The record is in memory, and the lock and the sockets are where they are.
	for _, dir := range []struct{ key, began, now string }{
		{"stateDir", r.began.StateDir, s.StateDir}, {"runtimeDir", r.began.RuntimeDir, s.RuntimeDir},
	} {
		if dir.now != dir.began {
			return nil, fmt.Errorf("%s: changed from %[3]s to %[2]s: restart the daemon", dir.key, dir.now, dir.began)
		}
	}
	w, err := r.app.wire(ctx, s, log)
	if err != nil {
		return nil, err
	}
	if err := loop.Reconfigure(ctx, w.agent, s.Interval); err != nil {
		return nil, fmt.Errorf("reload: %w", err)
	}
	return w, nil
}
