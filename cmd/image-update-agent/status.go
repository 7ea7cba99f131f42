// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
	"github.com/kubic-project/image-update-agent/internal/base/wait"
	"github.com/kubic-project/image-update-agent/internal/face/api"
	"github.com/kubic-project/image-update-agent/internal/face/cli"
	"github.com/kubic-project/image-update-agent/internal/face/statuspage"
	"github.com/kubic-project/image-update-agent/internal/face/terminal"
	"github.com/kubic-project/image-update-agent/internal/node/podfiles"
)

func (a *app) statusCommand() *cobra.Command {
	watch := false
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show what is running, what is available, and what blocks the rest",
		Long: `status shows the state of the node, each image with the running and the available
release, and what blocks an update. If the daemon does not run, status shows the last
status that the daemon wrote, and its age.

With --watch it shows the status again whenever the daemon reports a change, until
Ctrl-C; with --output json it prints one JSON object a line.

Exit status: 0 shown, 1 the status cannot be read, 2 the configuration is not valid (the
file and the line are shown, too).`,
		Example: `  image-update-agent status
  image-update-agent status --watch
  image-update-agent status --output json | jq -r .state
  image-update-agent status --watch --output json | jq -r .state`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if watch {
				return a.watchStatus(cmd.Context())
			}
			s, err := a.currentStatus(cmd.Context())
			invalid := a.invalid
			a.invalid = nil // it is part of the answer
			switch {
			case err != nil:
				return err
			case invalid == nil:
				return a.printStatus(s)
			case a.output == "json":
				return errors.Join(a.printStatus(s), invalid)
			}
			fmt.Fprintln(a.out, "Configuration is not valid; the daemon neither starts nor reloads with it:")
			for line := range strings.Lines(invalid.Error()) {
				fmt.Fprintln(a.out, "  "+strings.TrimSuffix(line, "\n"))
			}
			fmt.Fprintln(a.out)
			if err := a.printStatus(s); err != nil {
				return err
			}
			return cli.Exit(exitUsage)
		},
	}
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "show the status again at each change, until Ctrl-C")
	return a.withOutput(cmd)
}

// currentStatus asks the daemon for its status. Without a daemon it is the last one that was written.
func (a *app) currentStatus(ctx context.Context) (status.Status, error) {
	s, err := a.daemonSettings()
	if err != nil {
		return status.Status{}, err
	}
	shown, err := a.statusBelow(ctx, s)
	if err != nil && a.invalid != nil { // the configuration is what a person has to mend first
		err = a.invalid
	}
	return shown, err
}

// statusBelow is currentStatus for these settings.
func (a *app) statusBelow(ctx context.Context, settings settings) (status.Status, error) {
	// Other users can crowd the status socket, and not root's own.
	if s, err := api.NewClient(settings.socket("agent.sock")).Status(ctx); err == nil {
		return s, nil
	}
	s, err := api.NewClient(settings.socket("status.sock")).Status(ctx)
	if !errors.Is(err, api.ErrNoDaemon) {
		return s, err
	}
	switch last, lastErr := settings.lastStatus(); {
	case errors.Is(lastErr, fs.ErrNotExist):
		return s, fmt.Errorf("%w; and no daemon has written a status", err)
	case lastErr != nil:
		return s, fmt.Errorf("%w; its last status: %w", err, lastErr)
	default:
		fmt.Fprintf(a.err, "no daemon answers; this is the status of %s (%s)\n",
			terminal.Clock(last.Written, a.zone), terminal.Ago(time.Since(last.Written)))
		a.away = true
		if c, _ := a.loadAnyway(); c != nil {
			a.aside, _ = podfiles.New(podfiles.Dirs{PodManifests: c.Settings.PodManifests}).Aside(ctx) // not root: not known
		}
		return last, nil
	}
}

// printStatus writes a status as the user asked for it.
func (a *app) printStatus(s status.Status) error {
	return a.show(s, func() error { return statuspage.Status(a.page(), s, a.away, a.aside...) })
}

func (a *app) page() *terminal.Page { return terminal.NewPage(a.files.out, time.Now().In(a.zone)) }

// watchAgain is the time after which a watch connects again: a restart of the daemon takes about a second.
const watchAgain = time.Second

// wipe moves the cursor to the top left and empties the screen (ECMA-48, CUP and ED).
const wipe = "\x1b[H\x1b[2J"

// watchStatus shows the status, and shows it again at each change that the daemon reports, until ctx ends.
func (a *app) watchStatus(ctx context.Context) error {
	s, err := a.daemonSettings()
	if err != nil {
		return err
	}
	client, shown, alone := api.NewClient(s.socket("status.sock")), 0, false
	show := func(s status.Status) error {
		shown++
		alone = false
		return a.showAgain(s, shown > 1)
	}
	for {
		err := client.Watch(ctx, show)
		switch isAlone := errors.Is(err, api.ErrNoDaemon); {
		case ctx.Err() != nil:
			return cli.Exit(exitFailed) // with the code of the signal
		case !isAlone && !errors.Is(err, api.ErrWatchEnded), shown == 0:
			return err
		case isAlone && !alone:
			alone = true
			fmt.Fprintln(a.err, "image-update-agent: no daemon answers; waiting for it")
		}
		if wait.For(ctx, watchAgain) != nil {
			return cli.Exit(exitFailed)
		}
	}
}

// showAgain writes a status in the place of the last one: on a terminal over it, elsewhere below it.
func (a *app) showAgain(s status.Status, again bool) error {
	switch {
	case a.output == "json":
		return a.encoder().Encode(s)
	case terminal.Is(a.files.out):
		outside.NewWriter(a.files.out).Control(wipe)
	case again:
		fmt.Fprintln(a.out)
	}
	return a.printStatus(s)
}

func (a *app) historyCommand() *cobra.Command {
	return a.withOutput(&cobra.Command{
		Use:   "history [POD...]",
		Short: "Show past updates and rollbacks: when, by whom, and with what result",
		Long: `history lists the updates and rollbacks of this node, the newest first: one entry for
each container whose release changed, including releases that kubelet picked up by
itself, and failures. It keeps the last 50 entries over restarts of the daemon and the
node. If the daemon does not run, history shows the entries of the last status.

A POD is a pod manifest, with or without its suffix, or an image, as for apply. Without
POD the history of all pods is shown.

Exit status: 0 shown, 1 the history cannot be read, 2 unknown pod.`,
		Example: `  image-update-agent history
  image-update-agent history velum
  image-update-agent history --output json | jq '.[] | select(.result == "failed")'`,
		ValidArgsFunction: a.completeImages,
		RunE: func(cmd *cobra.Command, pods []string) error {
			s, err := a.currentStatus(cmd.Context())
			if err != nil {
				return err
			}
			if s.HasReason(status.KindStarting) && len(s.History) == 0 {
				return errors.New("the daemon has just started and has not read the history yet; try again in some seconds")
			}
			entries, err := historyOf(s, pods)
			if err != nil {
				return err
			}
			return a.show(entries, func() error { return statuspage.History(a.page(), entries) })
		},
	})
}

// historyOf returns the history of pods, or all of it. A pod that the node has may have no history yet.
func historyOf(s status.Status, pods []string) ([]status.HistoryEntry, error) {
	entries := append([]status.HistoryEntry{}, s.History...) // an older daemon has none
	if len(pods) == 0 {
		return entries, nil
	}
	for _, pod := range pods {
		isPod := slices.ContainsFunc(s.PodManifests, func(p status.PodStatus) bool { return isNameOf(p.PodManifest, pod) })
		isImage := slices.ContainsFunc(s.Images, func(i status.ImageStatus) bool { return plan.IsRepository(i.Image, pod) })
		isPast := slices.ContainsFunc(entries, func(e status.HistoryEntry) bool { return isEntryOf(e, pod) })
		if !isPod && !isImage && !isPast {
			return nil, fmt.Errorf("%s: %w", pod, plan.ErrUnknownImage)
		}
	}
	return slices.DeleteFunc(entries, func(e status.HistoryEntry) bool {
		return !slices.ContainsFunc(pods, func(pod string) bool { return isEntryOf(e, pod) })
	}), nil
}

func isEntryOf(e status.HistoryEntry, pod string) bool {
	return isNameOf(e.PodManifest, pod) || e.Image != "" && plan.IsRepository(e.Image, pod)
}

// isNameOf reports whether name is a pod manifest, with or without its suffix.
func isNameOf(podManifest, name string) bool {
	return podManifest == name || strings.TrimSuffix(podManifest, filepath.Ext(podManifest)) == name
}

func (a *app) checkCommand() *cobra.Command {
	return a.withQuiet(a.waits.addTo(a.withOutput(&cobra.Command{
		Use:   "check",
		Short: "Ask the registries now, and show the status",
		Long: `check makes the daemon ask every registry now, stage new releases and show the status. It
also works while polling is turned off. If you interrupt check, or --timeout passes, the
daemon finishes the check without the command.

Exit status: 0 the state is current, staged or applying, 1 it is failed, stale or
unchecked, 4 it is held, 5 timed out. The status is shown in each case but the last.`,
		Example: `  image-update-agent check
  image-update-agent check --timeout 5m
  image-update-agent check --quiet && image-update-agent apply     only if nothing blocks it
  image-update-agent check --output json | jq '.images[] | select(.offered)'`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.poll(cmd.Context(), (*api.Client).Check) },
	})))
}

// poll makes the daemon poll, and shows the status.
func (a *app) poll(
	ctx context.Context, do func(*api.Client, context.Context, func(status.Progress)) (*status.Status, error),
) error {
	daemon, err := a.daemonClient()
	if err != nil {
		return err
	}
	ctx, end, err := a.waits.limit(ctx)
	if err != nil {
		return err
	}
	defer end()
	bar := a.progress()
	s, err := do(daemon, ctx, bar.Show)
	bar.End()
	if s != nil {
		if perr := a.printStatus(*s); perr != nil {
			return perr
		}
	}
	if err != nil {
		return leave(ctx, err)
	}
	return endOf(s.State)
}
