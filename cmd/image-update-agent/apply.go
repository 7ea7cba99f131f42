// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/internal/api"
)

func (a *app) applyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "apply [IMAGE...]",
		Short: "Approve what is staged and bring it into use",
		Long: `apply approves what is staged for the named images, or for all, and waits until
the container runtime shows it running. An IMAGE is a repository, the end of one
(velum for registry.suse.com/caasp/v4/velum), or a pod manifest's file name.

Exit status: 0 all of it runs, 1 something did not come up, 2 unknown image,
3 nothing to apply, 4 held (the reason is shown).`,
		Example: `  image-update-agent apply
  image-update-agent apply velum
  image-update-agent apply private.yaml --output json`,
		ValidArgsFunction: a.completeImages,
		RunE: func(cmd *cobra.Command, args []string) error {
			settings, err := a.settings()
			if err != nil {
				return err
			}
			bar := newProgress(a.err)
			out, err := api.NewClient(settings.socket("agent.sock")).Apply(cmd.Context(), args, bar.show)
			bar.end()
			if err != nil {
				return err
			}
			if err := a.printOutcomes(out); err != nil {
				return err
			}
			if code := outcomeCode(out); code != exitDone {
				return exitError{code}
			}
			return nil
		},
	}
	a.outputFlag(cmd)
	return cmd
}

func (a *app) printOutcomes(out []agent.Outcome) error {
	if a.output == "json" {
		return a.printJSON(out)
	}
	table := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	for _, o := range out {
		if o.Result != agent.ResultNothing {
			line := fmt.Sprintf("%s\t%s\t%s", o.PodManifest, dash(o.Change), o.Result)
			if o.Reason != "" {
				line += "\t" + o.Reason
			}
			fmt.Fprintln(table, line)
		}
	}
	if outcomeCode(out) == exitNothing {
		fmt.Fprintln(table, "nothing is staged")
	}
	return table.Flush()
}

// outcomeCode is the worst of the results: a failure, a hold, then success;
// "nothing" only where there was nothing at all.
func outcomeCode(out []agent.Outcome) int {
	seen := map[agent.Result]bool{}
	for _, o := range out {
		seen[o.Result] = true
	}
	switch {
	case seen[agent.ResultFailed]:
		return exitFailed
	case seen[agent.ResultHeld]:
		return exitHeld
	case seen[agent.ResultApplied]:
		return exitDone
	default:
		return exitNothing
	}
}
