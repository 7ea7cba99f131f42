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

	"github.com/spf13/cobra"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/api"
	"github.com/kubic-project/image-update-agent/internal/cli"
	"github.com/kubic-project/image-update-agent/internal/statuspage"
)

func (a *app) applyCommand() *cobra.Command { //nolint:funlen // mostly the text of the help
	var req agent.ApplyRequest
	var diff bool
	var expect []string
	cmd := &cobra.Command{
		Use:   "apply [IMAGE... | --all]",
		Short: "Approve what is staged and bring it into use",
		Long: `apply approves what is staged for the named images, or for all, and waits until
the container runtime shows it running and ready, and it has stayed so for a
while. It says what changes before a pod is restarted, with --diff line by line
(in the JSON the field diff of each pod manifest); "plan --diff" shows the same and
applies nothing. What does not come up is rolled back to the release that ran well
before, and is not offered again until a newer one is there, or --retry is given. An
IMAGE is a repository, the end of one (velum for registry.suse.com/caasp/v4/velum), or a
pod manifest's file name.

With --expect only the digests that it names are applied: if another is offered by now
for a selected image, nothing is approved, and the error names both. "status --output
json" has them.

If it is interrupted, what has not begun is not applied. A pod that restarts already
goes on without it; "image-update-agent rollback" returns it afterwards.

Exit status: 0 all of it runs, 1 something did not come up, 2 unknown image,
3 nothing to apply, 4 held, or the offer has changed (the reason is shown).`,
		Example: `  image-update-agent apply
  image-update-agent apply velum
  image-update-agent apply --retry velum
  image-update-agent apply private.yaml --output json
  image-update-agent apply velum --expect velum=sha256:4f1e...   only this digest
  image-update-agent apply --all $(image-update-agent status --output json | jq -r \
      '.images[] | select(.offered and .staged) | "--expect \(.image)=\(.offered.digest)"')`,
		Args: func(_ *cobra.Command, args []string) (err error) {
			if req.All && len(args) > 0 {
				return cli.Usage(errors.New("image-update-agent apply: IMAGE and --all exclude each other"))
			}
			req.Images, req.All = args, len(args) == 0
			req.Expect, err = parseExpected(expect)
			return err
		},
		ValidArgsFunction: a.completeImages,
		RunE: func(cmd *cobra.Command, args []string) error {
			do := func(c *api.Client, onProgress func(status.Progress)) ([]statuspage.Outcome, error) {
				var diffs map[string]string
				if diff {
					var err error
					if diffs, err = a.diffBefore(cmd.Context(), c, args); err != nil {
						return nil, err
					}
				}
				out, err := c.Apply(cmd.Context(), req, onProgress)
				return statuspage.Outcomes(out, diffs), err
			}
			return a.outcomesOf(cmd.Context(), "nothing is staged", do)
		},
	}
	allFlag(cmd, &req.All, "apply all that is staged, as without IMAGE")
	cmd.Flags().StringArrayVar(&expect, "expect", nil,
		"apply only if this is offered: IMAGE=sha256:DIGEST, once for each offered image")
	cmd.Flags().BoolVar(&req.Retry, "retry", false, "apply also what did not come up before, or was rolled back")
	cmd.Flags().BoolVar(&diff, "diff", false, "before it begins, show what becomes of each pod manifest, line by line")
	return a.withOutput(cmd)
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

// diffBefore is what an apply is about to write, by pod manifest. It is shown at once;
// JSON has it among the outcomes.
func (a *app) diffBefore(ctx context.Context, c *api.Client, names []string) (map[string]string, error) {
	settings, err := a.settings()
	if err != nil {
		return nil, err
	}
	status, err := c.Status(ctx)
	if err != nil {
		return nil, err
	}
	diffs, err := a.waitingDiffs(settings, status, names)
	if err != nil || a.output == "json" {
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
		Short: "Return to the release that ran well before",
		Long: `rollback returns the named images, or with --all those of every pod manifest, to the
releases that ran well before the ones that run now, and waits until they run. It
says what returns to what before a pod is restarted. Their pods start anew; the other
images of a pod stay what they are. The pod manifest then names digests, so that no
registry is needed, until a newer release is applied. What is left is not offered
again until a newer release is there, or "apply --retry" is asked for; status says so.

Exit status: 0 it runs, 1 it did not come up, 2 unknown image or none named, 3 nothing
to return to, 4 held (the reason is shown).`,
		Example: `  image-update-agent rollback velum
  image-update-agent apply --retry velum`,
		Args:              namesOrAll("IMAGE", &all),
		ValidArgsFunction: a.completeImages,
		RunE: func(cmd *cobra.Command, args []string) error {
			do := func(c *api.Client, onProgress func(status.Progress)) ([]statuspage.Outcome, error) {
				out, err := c.Rollback(cmd.Context(), plan.Which{Images: args, All: all}, onProgress)
				return statuspage.Outcomes(out, nil), err
			}
			return a.outcomesOf(cmd.Context(), "nothing to return to", do)
		},
	}
	allFlag(cmd, &all, "return every image, also those of the control plane")
	return a.withOutput(cmd)
}

// outcomesOf has the daemon do what restarts pods, with its progress shown, and
// prints what became of each.
func (a *app) outcomesOf(
	ctx context.Context, none string, do func(*api.Client, func(status.Progress)) ([]statuspage.Outcome, error),
) error {
	daemon, err := a.daemonClient()
	if err != nil {
		return err
	}
	a.leaves.Store(true)
	// A second signal ends the program at once; the daemon has heard of the first.
	defer context.AfterFunc(ctx, func() { signal.Reset(os.Interrupt, syscall.SIGTERM) })()
	bar := statuspage.NewProgress(a.files.err)
	out, err := do(daemon, bar.Show)
	bar.End()
	if err != nil {
		return err
	}
	if err := a.printOutcomes(out, none); err != nil {
		return err
	}
	a.sayWhatContinues(out)
	return endOfOutcomes(out)
}

// sayWhatContinues says how to end what goes on without an interrupted verb.
func (a *app) sayWhatContinues(out []statuspage.Outcome) {
	for _, o := range out {
		if o.Result != status.ResultContinues {
			continue
		}
		back := "rollback"
		if o.Change == status.ChangeRollback {
			back = "apply --retry"
		}
		fmt.Fprintf(a.err, "image-update-agent: hint: `image-update-agent status` shows how %s goes on; "+
			"`image-update-agent %s %s` undoes it when it has ended\n", o.PodManifest, back, o.PodManifest)
	}
}

// endOfOutcomes is the worst of the results: a failure, a hold, then success; "nothing" only where there was nothing at
// all.
func endOfOutcomes(out []statuspage.Outcome) error {
	switch statuspage.Worst(out) {
	case status.ResultFailed, status.ResultContinues, status.ResultCanceled:
		return cli.Exit(exitFailed)
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
