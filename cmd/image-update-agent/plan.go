// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/source"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
	"github.com/kubic-project/image-update-agent/internal/face/cli"
	"github.com/kubic-project/image-update-agent/internal/face/statuspage"
	"github.com/kubic-project/image-update-agent/internal/node/state"
)

func (a *app) planCommand() *cobra.Command {
	var offline, diff bool
	var src string
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "Show what the next cycle would do, and what blocks the rest",
		Long: `plan looks at the node and asks the registries, as the next cycle will, and shows the
steps that would follow, the host that answered, and each newer tag that a rule refuses,
with the rule. It changes nothing.`,
		Example: `  image-update-agent plan
  image-update-agent plan --offline          use the last answers of the registries
  image-update-agent plan --offline --diff   also print the change of each pod manifest
  image-update-agent plan --source oci:/media/usb/images`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if offline && src != "" {
				return cli.Usage(errors.New("image-update-agent plan: give --offline or --source, not both"))
			}
			settings, err := a.settings()
			if err != nil {
				return err
			}
			w, err := a.wireFrom(cmd.Context(), settings, src)
			if err != nil {
				return err
			}
			defer w.close()
			w.agent.Recorder = state.NewReader(settings.StateDir)
			poll := source.PollAll
			if offline {
				poll = source.PollNone
			}
			plan, err := w.agent.Plan(cmd.Context(), poll)
			if err != nil {
				return err
			}
			v := statuspage.ViewOf(plan)
			outside.Hide(&v)
			if diff {
				if err := a.addDiffs(settings, plan, v); err != nil {
					return err
				}
			}
			return a.printPlan(v)
		},
	}
	cmd.Flags().BoolVar(&offline, "offline", false, "use the last answers of the registries, and send no request")
	cmd.Flags().BoolVar(&diff, "diff", false, "also print the change of each pod manifest line by line")
	sourceFlag(cmd, &src)
	return a.withOutput(cmd)
}

// addDiffs adds what becomes of each pod manifest to the view of a plan.
func (a *app) addDiffs(s settings, p plan.Plan, v statuspage.PlanView) error {
	for n, pod := range p.Pods {
		if pod.Wanted == nil {
			continue
		}
		var err error
		if v.Pods[n].Diff, err = a.diff(s, pod.File, pod.Wanted); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) printPlan(v statuspage.PlanView) error {
	return a.show(v, func() error { return v.Write(a.out, a.zone) })
}
