// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/source"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/base/nodefile"
	"github.com/kubic-project/image-update-agent/internal/face/api"
	"github.com/kubic-project/image-update-agent/internal/face/cli"
	"github.com/kubic-project/image-update-agent/internal/face/grains"
	"github.com/kubic-project/image-update-agent/internal/face/metrics"
	"github.com/kubic-project/image-update-agent/internal/face/statuspage"
	"github.com/kubic-project/image-update-agent/internal/face/terminal"
	"github.com/kubic-project/image-update-agent/internal/node/state"
	"github.com/kubic-project/image-update-agent/internal/registry"
	"github.com/kubic-project/image-update-agent/systemd"
)

func (a *app) runCommand() *cobra.Command {
	var once bool
	var source string
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run the daemon, or with --once a single cycle",
		Long: `The systemd unit starts run. The daemon polls once in each interval, at a time of its own
so that nodes spread their load, stages new releases, and serves two sockets. SIGHUP
reloads the configuration; SIGTERM ends the daemon between two steps.

With --once, run does a single cycle in the foreground, asks every registry, and shows the
status. Its exit status is that of ` + "`check`" + `.

With --once --source oci:PATH, it reads an OCI image layout instead of the registries, for
nodes without network: a directory, a directory tree, or an uncompressed tar file. It
stages and offers the images. To apply an offer later, a registry, a mirror or the local
registry must serve the tag: with the pull policy Always kubelet asks for the tag at each
start, and with IfNotPresent the agent pulls it once before it restarts the pod. See
docs/air-gap.md.`,
		Example: `  image-update-agent run
  image-update-agent run --once
  image-update-agent run --once --source oci:/media/usb/images`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if source != "" && !once {
				return cli.Usage(errors.New("--source requires --once"))
			}
			s, err := a.settings()
			if err != nil {
				return err
			}
			unlock, err := s.lockState(cmd.Context())
			if err != nil {
				return err
			}
			defer unlock()
			a.acts.Store(true)
			collectEarly()
			if once {
				return a.once(cmd.Context(), s, source)
			}
			return a.daemon(cmd.Context(), s)
		},
	}
	cmd.Flags().BoolVar(&once, "once", false, "run a single cycle in the foreground and exit")
	sourceFlag(cmd, &source)
	return a.withOutput(cmd)
}

// lockState keeps other agents out until unlock is called.
func (s settings) lockState(ctx context.Context) (unlock func(), err error) {
	unlock, err = state.New(s.StateDir, s.RuntimeDir, quietLog()).Lock(ctx)
	if isA[*nodefile.LockedError](err) {
		_, silent := api.NewClient(s.socket("agent.sock")).Status(ctx)
		err = lockedError{err, silent == nil || errors.Is(silent, api.ErrBusy)}
	}
	return unlock, err
}

// once does a single cycle.
func (a *app) once(ctx context.Context, s settings, src string) error {
	w, err := a.wireFrom(ctx, s, src)
	if err != nil {
		return err
	}
	defer w.close()
	if err := w.mayCycle(ctx); err != nil {
		return err
	}
	if err := w.sweep(ctx, quietLog()); err != nil {
		return err
	}
	bar := statuspage.NewProgress(a.files.err)
	w.agent.Progress = bar.Show
	status, err := w.agent.Cycle(ctx, source.PollAll)
	bar.End()
	if err != nil {
		return err
	}
	if err := a.printStatus(status); err != nil {
		return err
	}
	return endOf(status.State)
}

// daemon runs until ctx ends.
func (a *app) daemon(ctx context.Context, s settings) error {
	oneProcessor()
	log := logger(a.err, s.Log)
	notify, err := systemd.NewNotifier(log)
	if err != nil {
		return err
	}
	counts := metrics.NewCounts()
	a.meter = counts // of all wirings to come
	w, err := a.wire(ctx, s, log, nil)
	if err != nil {
		return err
	}
	killpoints(w.agent)
	var current atomic.Pointer[wiring]
	current.Store(w)
	defer func() { current.Load().close() }()
	if err := w.sweep(ctx, log); err != nil {
		return err
	}
	loop := agent.NewLoop(w.agent, newFrugalNotifier(notify), s.Interval, notify.Every(), s.machineID())
	acting, reading, err := sockets(ctx, s, loop, log)
	if err != nil {
		return err
	}
	port := serveMetrics(reading, metricsOf(&current, loop, counts), s.Metrics.Listen, log)
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP) // before READY=1, which invites it: without a handler it would end the daemon
	defer signal.Stop(hup)
	reloads := &reloader{app: a, began: s, hup: hup, asked: make(chan chan<- error), take: taking(&current, port)}
	acting.Reload(reloads.ask)
	reading.Watch(loop)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(acting.Serve)
	group.Go(reading.Serve)
	group.Go(func() error { return loop.Run(ctx) })
	group.Go(func() error { port.Run(ctx); return nil })
	group.Go(func() error { onBus(s, loop, log).Run(ctx); return nil })
	group.Go(func() error { reloads.run(ctx, loop, notify, log); return nil })
	group.Go(func() error {
		<-ctx.Done()
		notify.Stopping("stopping")
		return errors.Join(reading.Drain(drainPatience), acting.Close())
	})
	log.Info("started", "version", version, "interval", s.Interval)
	notify.Ready(terminal.InZone(status.Sentence(loop.Status()), time.Local))
	return group.Wait()
}

// sweep removes what a crash left of writes, under the lock. The state's own
// directories are swept when that is taken.
func (w *wiring) sweep(ctx context.Context, log *slog.Logger) error {
	if err := grains.New(w.root, w.Grains.Path, log).Sweep(ctx); err != nil {
		log.WarnContext(ctx, "cannot remove old files from the grains directory", "err", err) // nothing depends on it
	}
	return w.files.Sweep(ctx)
}

// onBus is the daemon's object on the system bus. A reload does not change it: neither
// its address nor the machine's name is among the settings.
func onBus(s settings, loop *agent.Loop, log *slog.Logger) *api.Bus {
	return api.NewBus(api.BusOptions{
		Address: systemBus(s.root), MachineID: strings.TrimSpace(s.machineID()), Daemon: loop, Log: log,
	})
}

// drainPatience is how long the end of the daemon waits for clients of the status
// socket: a status is sent in milliseconds, but a client may be slow, or silent.
const drainPatience = 3 * time.Second

// sockets opens the acting socket, and the status socket if the service manager
// has not done so.
func sockets(
	ctx context.Context, s settings, loop *agent.Loop, log *slog.Logger,
) (acting, reading *api.Server, err error) {
	acting, err = api.Listen(ctx, s.socket("agent.sock"), false, loop, log)
	if err != nil {
		return nil, nil, err
	}
	path := s.socket("status.sock")
	if given := systemd.Socket(path, log); given != nil {
		return acting, api.On(given, true, loop, log), nil
	}
	reading, err = api.Listen(ctx, path, true, loop, log)
	if err != nil {
		return nil, nil, errors.Join(err, acting.Close())
	}
	return acting, reading, nil
}

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
	w, err := r.app.wire(ctx, s, log, nil)
	if err != nil {
		return nil, err
	}
	if err := loop.Reconfigure(ctx, w.agent, s.Interval); err != nil {
		return nil, fmt.Errorf("reload: %w", err)
	}
	return w, nil
}

// metricsOf serves the numbers of the wiring that is in force, which a reload
// replaces, and of the loop and what it counts, which stay.
func metricsOf(current *atomic.Pointer[wiring], loop *agent.Loop, counts *metrics.Counts) http.Handler {
	return metrics.Handler(metrics.Readings{
		Version:  version,
		Requests: func() map[string]uint64 { return current.Load().sent().Kinds() },
		Received: func() uint64 { return current.Load().sent().Received },
		Pace:     func() record.Pace { return current.Load().registry.Pace() },
		PerHour:  func() int { return current.Load().RequestsPerHour },
		Status:   loop.Status,
		Holds:    status.HoldNames(),
		Now:      time.Now,
	}, counts)
}

// serveMetrics serves numbers on the status socket, and makes the port for them.
func serveMetrics(socket *api.Server, numbers http.Handler, listen string, log *slog.Logger) *metrics.Port {
	socket.Metrics(numbers)
	port := metrics.NewPort(numbers, log)
	port.Listen(listen)
	return port
}

// taking puts a wiring in the place of the one that is in force.
func taking(current *atomic.Pointer[wiring], port *metrics.Port) func(*wiring) {
	return func(next *wiring) {
		last := current.Load()
		next.before = last.sent() // counts go on
		current.Store(next)
		port.Listen(next.Metrics.Listen)
		last.close()
	}
}

// sent is what went over the wire since the start of the daemon.
func (w *wiring) sent() registry.Counts { return w.before.Plus(w.registry.Counts()) }
