// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/base/window"
	"github.com/kubic-project/image-update-agent/internal/face/api"
	"github.com/kubic-project/image-update-agent/internal/face/cli"
	"github.com/kubic-project/image-update-agent/internal/face/statuspage"
	"github.com/kubic-project/image-update-agent/internal/node/config"
)

func (a *app) applyCommand() *cobra.Command { //nolint:funlen // mostly the text of the help
	var req agent.ApplyRequest
	var diff bool
	var expect []string
	cmd := &cobra.Command{
		Use:   "apply [IMAGE... | --all]",
		Short: "Approve staged updates and apply them",
		Long: `apply approves the staged updates of the named images, or of all images, and waits until
the new containers are running, ready and stable. Before it restarts a pod, it prints
what changes; --diff prints each change line by line. If a pod does not become healthy,
the agent rolls it back to the last release that ran well, and does not offer the failed
release again, unless you give --retry.

An IMAGE is a repository, the last part of one (velum for
registry.suse.com/caasp/v4/velum), or the file name of a pod manifest.

With --dry-run, apply prints what it would do now: the pods that it would restart, in
their order, with the diff of each pod manifest, and the holds of the others. It changes
nothing. The fleet lock and the health of the control plane are checked only by a real
apply.

With --expect, apply approves nothing unless exactly these digests are offered for the
selected images. "status --output json" has the digests.

If you interrupt apply, or --timeout passes, pods that have not begun to restart are not
applied. A pod that has begun to restart goes on without the command; "image-update-agent
rollback" undoes it afterwards.

Exit status: 0 applied, 1 a pod did not become healthy, 2 unknown image, 3 nothing to
apply, 4 held, or the offer has changed, 5 timed out. With --dry-run: 0 apply would
restart a pod, 3 nothing to apply, 4 held.`,
		Example: `  image-update-agent apply
  image-update-agent apply velum
  image-update-agent apply velum --dry-run
  image-update-agent apply velum --timeout 10m
  image-update-agent apply --retry velum
  image-update-agent apply private.yaml --output json
  image-update-agent apply velum --expect velum=sha256:4f1e...   apply only this digest
  image-update-agent apply --all $(image-update-agent status --output json | jq -r \
      '.images[] | select(.offered and .staged) | "--expect \(.image)=\(.offered.digest)"')`,
		Args: func(_ *cobra.Command, args []string) (err error) {
			if req.All && len(args) > 0 {
				return cli.Usage(errors.New("image-update-agent apply: give IMAGE or --all, not both"))
			}
			req.Images, req.All = args, len(args) == 0
			req.Expect, err = parseExpected(expect)
			return err
		},
		ValidArgsFunction: a.completeImages,
		RunE: func(cmd *cobra.Command, args []string) error {
			do := func(
				ctx context.Context, c *api.Client, onProgress func(status.Progress),
			) ([]statuspage.Outcome, error) {
				var diffs map[string]string
				if diff || req.DryRun {
					var err error
					if diffs, err = a.diffBefore(ctx, c, args, !req.DryRun); err != nil {
						return nil, err
					}
				}
				out, err := c.Apply(ctx, req, onProgress)
				return statuspage.Outcomes(out, diffs), err
			}
			return a.outcomesOf(cmd.Context(), "nothing to apply", do)
		},
	}
	allFlag(cmd, &req.All, "apply every staged update (the default without IMAGE)")
	cmd.Flags().StringArrayVar(&expect, "expect", nil,
		"apply only if this digest is offered, as IMAGE=sha256:DIGEST; repeat it for each offered image")
	cmd.Flags().BoolVar(&req.Retry, "retry", false, "also apply a release that failed before or was rolled back")
	cmd.Flags().BoolVar(&diff, "diff", false, "print the change of each pod manifest line by line first")
	cmd.Flags().BoolVar(&req.DryRun, "dry-run", false, "print what apply would do now, and change nothing")
	return a.withQuiet(a.waits.addTo(a.withOutput(cmd)))
}

// parseExpected reads IMAGE=sha256:DIGEST.
func parseExpected(texts []string) ([]plan.Shown, error) {
	var out []plan.Shown
	for _, text := range texts {
		shown, err := plan.ParseShown(text)
		if err != nil {
			return nil, cli.Usage(fmt.Errorf("--expect %w", err))
		}
		out = append(out, shown)
	}
	return out, nil
}

// diffBefore returns what an apply is about to write, by pod manifest. With show it is printed at once; JSON has it
// among the outcomes.
func (a *app) diffBefore(
	ctx context.Context, c *api.Client, names []string, show bool,
) (map[string]string, error) {
	settings, err := a.settings()
	if isConfig(err) && !show {
		return nil, nil // a dry run shows the rest
	}
	if err != nil {
		return nil, err
	}
	status, err := c.Status(ctx)
	if err != nil {
		return nil, err
	}
	diffs, err := a.waitingDiffs(settings, status, names)
	if err != nil || a.output == "json" || a.quiet || !show {
		return diffs, err
	}
	for _, file := range slices.Sorted(maps.Keys(diffs)) {
		if _, err := io.WriteString(a.out, diffs[file]); err != nil {
			return nil, err
		}
	}
	return diffs, nil
}

func (a *app) rollbackCommand() *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "rollback {IMAGE... | --all}",
		Short: "Roll back to the previous release",
		Long: `rollback returns the named images, or with --all the images of every pod manifest, to the
release that ran well before the current one, and waits until it is running. Before it
restarts a pod, it prints what changes. The other images of the pod stay as they are. The
pod manifest then names digests, so the rollback needs no registry. The agent does not
offer the release that was rolled back again, until a newer one is available or you run
"apply --retry"; status shows this.

If you interrupt rollback, or --timeout passes, pods that have not begun to restart stay
as they are. A pod that has begun to restart goes on without the command.

Exit status: 0 rolled back, 1 a pod did not become healthy, 2 unknown image or none
given, 3 nothing to roll back to, 4 held, 5 timed out.`,
		Example: `  image-update-agent rollback velum
  image-update-agent rollback velum --timeout 10m
  image-update-agent apply --retry velum       undo a rollback`,
		Args:              namesOrAll("IMAGE", &all),
		ValidArgsFunction: a.completeImages,
		RunE: func(cmd *cobra.Command, args []string) error {
			do := func(
				ctx context.Context, c *api.Client, onProgress func(status.Progress),
			) ([]statuspage.Outcome, error) {
				out, err := c.Rollback(ctx, plan.Which{Images: args, All: all}, onProgress)
				return statuspage.Outcomes(out, nil), err
			}
			return a.outcomesOf(cmd.Context(), "nothing to roll back to", do)
		},
	}
	allFlag(cmd, &all, "roll back every image, including those of the control plane")
	return a.withQuiet(a.waits.addTo(a.withOutput(cmd)))
}

// outcomesOf makes the daemon restart pods, shows the progress, and prints the outcome of each.
func (a *app) outcomesOf(
	ctx context.Context, none string,
	do func(context.Context, *api.Client, func(status.Progress)) ([]statuspage.Outcome, error),
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
	a.leaves.Store(true)
	// A second signal ends the program at once; the daemon has heard of the first.
	defer context.AfterFunc(ctx, func() { signal.Reset(os.Interrupt, syscall.SIGTERM) })()
	bar := a.progress()
	out, err := do(ctx, daemon, bar.Show)
	bar.End()
	if err != nil {
		return leave(ctx, err)
	}
	if err := a.printOutcomes(out, none); err != nil {
		return err
	}
	a.sayWhatContinues(out, context.Cause(ctx))
	return endOfOutcomes(out, context.Cause(ctx))
}

// sayWhatContinues says what goes on without a verb that stopped waiting, and how to undo it.
func (a *app) sayWhatContinues(out []statuspage.Outcome, why error) {
	for _, o := range out {
		if o.Result != status.ResultContinues || why == nil { // without a reason here, the outcome has one
			continue
		}
		undo := "rollback"
		if o.Change == status.ChangeRollback {
			undo = "apply --retry"
		}
		fmt.Fprintf(a.err, "image-update-agent: error: %v: the daemon continues with %s\n", why, o.PodManifest)
		fmt.Fprintf(a.err, "image-update-agent: hint: `image-update-agent status` shows its progress; when it has ended, "+
			"`image-update-agent %s %s` undoes it\n", undo, o.PodManifest)
	}
}

// endOfOutcomes is the worst of the results: a failure, a hold, then success; "nothing" only where there was nothing at
// all. why is why the verb stopped waiting.
func endOfOutcomes(out []statuspage.Outcome, why error) error {
	switch statuspage.Worst(out) {
	case status.ResultFailed:
		return cli.Exit(exitFailed)
	case status.ResultContinues, status.ResultCanceled:
		return cli.Exit(codeOf(why, exitFailed))
	case status.ResultHeld:
		return cli.Exit(exitHeld)
	case status.ResultNothing:
		return cli.Exit(exitNothing)
	default:
		return nil
	}
}

func (a *app) printOutcomes(out []statuspage.Outcome, none string) error {
	return a.show(out, func() error { return statuspage.WriteOutcomes(a.out, out, none, a.zone) })
}

func (a *app) holdCommand() *cobra.Command {
	var req api.HoldRequest
	var end string
	cmd := &cobra.Command{
		Use:   "hold {IMAGE... | --all}",
		Short: "Block updates of images until a date, or until resume",
		Long: `hold blocks updates of the named images, or of all images: the agent still stages and
offers them, but does not apply them, and apply prints the reason. An IMAGE is named as
for apply. A new hold on an image replaces the old one.

hold does not stop kubelet: with the pull policy Always, kubelet pulls a rebuild whenever
it starts a container.

Exit status: 0 held, 1 failed, 2 unknown image or invalid date.`,
		Example: `  image-update-agent hold velum --until 2026-12-24 --reason "no changes before the holidays"
  image-update-agent hold --all --until 72h
  image-update-agent hold private.yaml --until 7d --output json`,
		Args:              namesOrAll("IMAGE", &req.All),
		ValidArgsFunction: a.completeImages,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			req.Images = args
			if req.Until, err = window.ParseEnd(end, time.Now()); err != nil {
				return cli.Usage(fmt.Errorf("--until %w", err))
			}
			if err := config.CheckReason(req.Reason); req.Reason != "" && err != nil {
				return cli.Usage(fmt.Errorf("--reason: %w", err))
			}
			daemon, err := a.daemonClient()
			if err != nil {
				return err
			}
			held, err := daemon.Hold(cmd.Context(), req)
			if err != nil {
				return err
			}
			view := statuspage.NewHeld(held, req.Reason, req.Until)
			return a.show(view, func() error { return view.Write(a.out, a.zone) })
		},
	}
	cmd.Flags().StringVar(&end, "until", "",
		"end of the hold: a date (2026-12-24, 2026-12-24T18:00:00+01:00) or a duration (12h, 7d); default: until resume")
	cmd.Flags().StringVar(&req.Reason, "reason", "", "reason that status shows")
	allFlag(cmd, &req.All, "hold every image, including future ones")
	return a.withQuiet(a.withOutput(cmd))
}

func (a *app) resumeCommand() *cobra.Command {
	var which plan.Which
	cmd := &cobra.Command{
		Use:   "resume {IMAGE... | --all}",
		Short: "Remove holds", SuggestFor: []string{"unhold", "release"},
		Long: `resume removes the holds on the named images, or with --all every hold. A hold of the
configuration ends when you remove it there.

Exit status: 0 removed, 1 failed, 2 unknown image, 3 there was no such hold.`,
		Example: `  image-update-agent resume velum
  image-update-agent resume --all`,
		Args:              namesOrAll("IMAGE", &which.All),
		ValidArgsFunction: a.completeImages,
		RunE: func(cmd *cobra.Command, args []string) error {
			daemon, err := a.daemonClient()
			if err != nil {
				return err
			}
			which.Images = args
			held, err := daemon.Resume(cmd.Context(), which)
			if err != nil {
				return err
			}
			view := statuspage.Resumed{Resumed: append([]string{}, held...)}
			if err := a.show(view, func() error { return view.Write(a.out) }); err != nil || len(held) > 0 {
				return err
			}
			return cli.Exit(exitNothing)
		},
	}
	allFlag(cmd, &which.All, "remove every hold")
	return a.withQuiet(a.withOutput(cmd))
}

func allFlag(cmd *cobra.Command, all *bool, usage string) {
	cmd.Flags().BoolVar(all, "all", false, usage)
}

// namesOrAll wants one of the two. No names must not mean all: an empty variable of a
// script would then hold the node.
func namesOrAll(what string, all *bool) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case *all && len(args) > 0:
			return cli.Usage(fmt.Errorf("%s: give %s or --all, not both", cmd.CommandPath(), what))
		case !*all && len(args) == 0:
			return cli.Usage(fmt.Errorf("%s: %s or --all is required", cmd.CommandPath(), what))
		}
		return nil
	}
}
