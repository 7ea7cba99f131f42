// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubic-project/image-update-agent/internal/catalog/publish"
	"github.com/kubic-project/image-update-agent/internal/face/cli"
	"github.com/kubic-project/image-update-agent/internal/face/terminal"
)

// pruned is `prune --output json`.
type pruned struct {
	Channel string `json:"channel"`
	DryRun  bool   `json:"dryRun"`
	publish.Pruned
}

func (a *app) pruneCommand() *cobra.Command {
	o := publish.Pruning{Keep: 100}
	older := "24h"
	cmd := &cobra.Command{
		Use:   "prune CHANNEL",
		Short: "Delete old versions of a channel",
		Long: `prune deletes old versions of a channel, their signatures, stored changes (ops) that the channel
has, and signatures whose version is gone. It keeps the newest versions, and what was replaced
within --older: at least 24 hours, because another publisher may still need it. prune says what
it keeps and why. The log of the channel keeps who changed what. The registry frees the
space when it collects garbage.

Exit status: 0 deleted, 3 there was nothing to delete.`,
		Example: `  image-catalog prune stage --keep 50 --key ci.key
  image-catalog prune prod --older 90d --key prod.key
  image-catalog prune stage --dry-run`,
		Args: wantArgs(false, "CHANNEL"),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if o.Keep < 1 {
				return cli.Usage(errors.New("--keep: want at least 1"))
			}
			if o.Older, err = span("older", older); err != nil {
				return err
			}
			if o.Older < 24*time.Hour {
				return cli.Usage(fmt.Errorf("--older %s: want at least 24h", older))
			}
			p, err := a.publisher(cmd.Context())
			if err != nil {
				return err
			}
			o.DryRun = a.flags.dryRun
			got, err := p.Prune(cmd.Context(), args[0], o)
			if err != nil {
				return err
			}
			err = a.print(pruned{args[0], o.DryRun, got}, func(page *terminal.Page) { a.writePruned(page, got) })
			if err == nil && len(got.Deleted) == 0 {
				return cli.Exit(exitNothing)
			}
			return err
		},
	}
	cmd.Flags().IntVar(&o.Keep, "keep", o.Keep, "keep this many of the newest versions")
	cmd.Flags().BoolVar(&o.Foreign, "foreign", false,
		"also delete pending changes that no key of the channel signed: they never count")
	cmd.Flags().StringVar(&older, "older", older, "keep what was replaced within this time: 48h, 90d")
	return a.withKey(cmd)
}

func (a *app) writePruned(page *terminal.Page, got publish.Pruned) {
	for _, tag := range got.Deleted {
		page.Line("- " + tag)
	}
	for _, kept := range got.Kept {
		page.Line(fmt.Sprintf("Kept %s: %s.", terminal.Plural(kept.Count, "tag"), kept.Why))
	}
	verb := "Deleted"
	if a.flags.dryRun {
		verb = "Would delete"
	}
	page.Line(fmt.Sprintf("%s %s.", verb, terminal.Plural(len(got.Deleted), "tag")))
}
