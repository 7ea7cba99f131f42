// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/kubic-project/image-update-agent/internal/catalog/publish"
	"github.com/kubic-project/image-update-agent/internal/face/cli"
)

func (a *app) withdrawCommand() *cobra.Command {
	var w publish.Withdrawal
	cmd := &cobra.Command{
		Use:   "withdraw CHANNEL [IMAGE:TAG...] --reason TEXT",
		Short: "Mark releases as withdrawn",
		Long: `withdraw marks releases as withdrawn, with a reason. Nodes do not offer them any more; a node
that runs one shows the reason. Withdrawn releases stay listed, and promote skips them unless
you use --withdrawn. --set withdraws all releases of a set.

withdraw also finds a release that only earlier versions list. If no version lists it, name
it with its digest: IMAGE:TAG@DIGEST. withdraw marks all tags of the digest.

Exit status: 0 published, 3 all of them are withdrawn for this reason already.`,
		Example: `  image-catalog withdraw prod velum:4.0.0-rev1-build1.4 \
    --reason "bsc#1199876: loses its session secret" \
    --instead 4.0.0-rev1-build1.5 --key prod.key
  image-catalog withdraw prod --set caasp-4.5.2 --reason "bsc#1199876" \
    --instead velum:4.0.0-rev1-build1.5 --instead etcd:3.4-rev1-build1.3 --key prod.key`,
		Args: wantArgs(true, "CHANNEL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			w.Images = args[1:]
			switch {
			case (len(w.Images) > 0) == (w.Set != ""):
				return cli.Usage(errors.New("want either IMAGE:TAG... or --set NAME"))
			case w.Reason == "":
				return cli.Usage(errors.New("--reason TEXT is missing: nodes show it to their admins"))
			}
			p, err := a.publisher(cmd.Context())
			if err != nil {
				return err
			}
			return a.change(cmd.Context(), p, args[0], publish.Withdraw(w), publish.How{})
		},
	}
	cmd.Flags().StringVar(&w.Set, "set", "", "all releases of this set")
	cmd.Flags().StringVar(&w.Reason, "reason", "", "why: nodes show it to their admins; one line of at most 512 bytes")
	cmd.Flags().StringArrayVar(&w.Instead, "instead", nil,
		"tag to run instead; for several images, IMAGE:TAG (repeatable)")
	return a.withOut(cmd)
}
