// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/kubic-project/image-update-agent/internal/catalog"
	"github.com/kubic-project/image-update-agent/internal/catalog/publish"
)

func (a *app) withdrawCommand() *cobra.Command {
	var reason, instead string
	cmd := &cobra.Command{
		Use:   "withdraw CHANNEL IMAGE:TAG... --reason TEXT",
		Short: "Say that nobody is to run a release, and why",
		Long: `withdraw marks releases: nodes offer them no more, and those that run one say so with the
reason. Withdrawn releases stay listed. promote offers them again.

Exit status: 0 published, 3 all of them are withdrawn for this reason already.`,
		Example: `  image-catalog withdraw prod velum:4.0.0-rev1-build1.4 \
    --reason "bsc#1199876: loses its session secret" \
    --instead 4.0.0-rev1-build1.5 --key prod.key`,
		Args: wantArgs(true, "CHANNEL", "IMAGE:TAG"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if reason == "" {
				return usageError{errors.New("--reason TEXT is missing: nodes show it")}
			}
			if instead != "" && len(args) > 2 {
				return usageError{errors.New("--instead takes one image")}
			}
			p, err := a.publisher(cmd.Context())
			if err != nil {
				return err
			}
			v, err := p.Read(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			changes, err := p.Withdrawn(cmd.Context(), v, args[1:], reason, instead)
			if err != nil {
				return err
			}
			return a.change(cmd.Context(), p, publish.Request{
				Channel: args[0], Do: catalog.ActionWithdraw, Changes: changes,
			})
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the people of the nodes: at most 512 bytes")
	cmd.Flags().StringVar(&instead, "instead", "", "the tag to run in its place")
	return a.withOut(cmd)
}
