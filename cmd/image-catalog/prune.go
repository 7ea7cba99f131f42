// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kubic-project/image-update-agent/internal/cli"
	"github.com/kubic-project/image-update-agent/internal/terminal"
)

// pruned is `prune --output json`.
type pruned struct {
	Channel string   `json:"channel"`
	DryRun  bool     `json:"dryRun"`
	Deleted []string `json:"deleted"` // tags
}

func (a *app) pruneCommand() *cobra.Command {
	keep := 100
	cmd := &cobra.Command{
		Use:   "prune CHANNEL",
		Short: "Delete old versions, and ops that are in the channel",
		Long: `prune deletes versions of a channel but the newest ones, their signatures, and the ops that
the channel has. What the channel got or replaced within the last 24 hours stays, so
that nothing is lost to those who publish at the same time. The registry frees the
space when it collects garbage.

Exit status: 0 deleted, 3 there was nothing to delete.`,
		Example: `  image-catalog prune stage --keep 50 --key ci.key
  image-catalog prune stage --dry-run`,
		Args: wantArgs(false, "CHANNEL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if keep < 1 {
				return cli.Usage(errors.New("--keep: want at least 1"))
			}
			p, err := a.publisher(cmd.Context())
			if err != nil {
				return err
			}
			gone, err := p.Prune(cmd.Context(), args[0], keep, a.flags.dryRun)
			if err != nil {
				return err
			}
			err = a.print(pruned{Channel: args[0], DryRun: a.flags.dryRun, Deleted: gone},
				func(page *terminal.Page) { a.writePruned(page, gone) })
			if err == nil && len(gone) == 0 {
				return cli.Exit(exitNothing)
			}
			return err
		},
	}
	cmd.Flags().IntVar(&keep, "keep", keep, "so many of the newest versions stay")
	return a.withKey(cmd)
}

func (a *app) writePruned(page *terminal.Page, gone []string) {
	for _, tag := range gone {
		page.Line(tag)
	}
	verb := "Deleted"
	if a.flags.dryRun {
		verb = "Would delete"
	}
	page.Line(fmt.Sprintf("%s %s.", verb, terminal.Plural(len(gone), "tag")))
}
