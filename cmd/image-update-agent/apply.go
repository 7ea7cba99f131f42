// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"io"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/api"
	"github.com/kubic-project/image-update-agent/internal/statuspage"
)

func (a *app) applyCommand() *cobra.Command {
	var retry, diff bool
	cmd := &cobra.Command{
		Use:   "apply [IMAGE...]",
		Short: "Approve what is staged and bring it into use",
		Long: `apply approves what is staged for the named images, or for all, and waits until
the container runtime shows it running and ready, and it has stayed so for a
while. It says what changes before a pod is restarted, with --diff line by line
(in the JSON the field diff of each pod manifest); "plan --diff" shows the same and
applies nothing. What does not come up is rolled back to the release that ran well
before, and is not offered again until a newer one is there, or --retry is given. An
IMAGE is a repository, the end of one (velum for registry.suse.com/caasp/v4/velum), or a
pod manifest's file name.

Exit status: 0 all of it runs, 1 something did not come up, 2 unknown image,
3 nothing to apply, 4 held (the reason is shown).`,
		Example: `  image-update-agent apply
  image-update-agent apply velum
  image-update-agent apply --retry velum
  image-update-agent apply private.yaml --output json`,
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
				out, err := c.Apply(cmd.Context(), args, retry, onProgress)
				return statuspage.Outcomes(out, diffs), err
			}
			return a.outcomesOf("nothing is staged", do)
		},
	}
	cmd.Flags().BoolVar(&retry, "retry", false, "apply also what did not come up before, or was rolled back")
	cmd.Flags().BoolVar(&diff, "diff", false, "before it begins, show what becomes of each pod manifest, line by line")
	return a.withOutput(cmd)
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
				out, err := c.Rollback(cmd.Context(), api.Which{Images: args, All: all}, onProgress)
				return statuspage.Outcomes(out, nil), err
			}
			return a.outcomesOf("nothing to return to", do)
		},
	}
	allFlag(cmd, &all, "return every image, also those of the control plane")
	return a.withOutput(cmd)
}

// outcomesOf has the daemon do what restarts pods, with its progress shown, and
// prints what became of each.
func (a *app) outcomesOf(
	none string, do func(*api.Client, func(status.Progress)) ([]statuspage.Outcome, error),
) error {
	daemon, err := a.daemonClient()
	if err != nil {
		return err
	}
	bar := statuspage.NewProgress(a.files.err)
	out, err := do(daemon, bar.Show)
	bar.End()
	if err != nil {
		return err
	}
	if err := a.printOutcomes(out, none); err != nil {
		return err
	}
	return endOfOutcomes(out)
}

// endOfOutcomes is the worst of the results: a failure, a hold, then success; "nothing" only where there was nothing at
// all.
func endOfOutcomes(out []statuspage.Outcome) error {
	switch statuspage.Worst(out) {
	case status.ResultFailed:
		return exitError{exitFailed}
	case status.ResultHeld:
		return exitError{exitHeld}
	case status.ResultNothing:
		return exitError{exitNothing}
	default:
		return nil
	}
}

func (a *app) printOutcomes(out []statuspage.Outcome, none string) error {
	return a.show(out, func() error { return statuspage.WriteOutcomes(a.out, out, none, a.zone) })
}
