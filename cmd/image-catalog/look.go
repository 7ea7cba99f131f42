// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kubic-project/image-update-agent/internal/catalog/publish"
	"github.com/kubic-project/image-update-agent/internal/cli"
	"github.com/kubic-project/image-update-agent/internal/terminal"
)

func (a *app) diffCommand() *cobra.Command {
	return a.withOutput(&cobra.Command{
		Use:   "diff FROM TO",
		Short: "Show what a promotion from one channel to another would change",
		Long: `diff shows each image whose newest release differs, and releases that one channel has
withdrawn and the other still offers. promote skips what TO has withdrawn.

Exit status: 0 they differ, 3 they offer the same.`,
		Example: `  image-catalog diff stage prod
  image-catalog diff stage prod --output json`,
		Args: wantArgs(false, "FROM", "TO"),
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := a.publisher(cmd.Context())
			if err != nil {
				return err
			}
			from, err := p.Current(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			to, err := p.Current(cmd.Context(), args[1])
			if err != nil {
				return err
			}
			list, err := p.Diff(cmd.Context(), from, to)
			if err != nil {
				return err
			}
			return a.printDiff(args[0], args[1], list)
		},
	})
}

func (a *app) printDiff(from, to string, list []publish.Difference) error {
	err := a.print(list, func(page *terminal.Page) {
		rows := [][]string{{"IMAGE", from, to, "CHANGE"}}
		for _, d := range list {
			change := d.Change
			if d.WithdrawnFrom != "" {
				change += " from " + d.WithdrawnFrom
			}
			if d.Note != "" {
				change += ": " + d.Note
			}
			rows = append(rows, []string{d.Image, cmp.Or(d.From, "-"), cmp.Or(d.To, "-"), change})
		}
		if len(list) == 0 {
			rows = [][]string{{from + " and " + to + " offer the same."}}
		}
		page.Rows(rows)
	})
	if err == nil && len(list) == 0 {
		return cli.Exit(exitNothing)
	}
	return err
}

func (a *app) verifyCommand() *cobra.Command {
	images := false
	cmd := &cobra.Command{
		Use:   "verify [CHANNEL...]",
		Short: "Check channels: signatures, pages, ops that wait, images",
		Long: `verify checks all channels, or these: the signature with the keys of --trust, each page,
the version tags, when the channel expires, ops that no publisher could fold, and with --images
that each release that is offered is in its registry. Without --trust no signature can be
checked, which is something that it finds; --unsigned says that the catalog has no signatures.

Exit status: 0 all is well, 1 something was found, or there is no channel.`,
		Example: `  image-catalog verify --trust ci.pub --trust prod.pub
  image-catalog verify prod --images --trust prod.pub`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if a.flags.unsigned && len(a.flags.trust) > 0 {
				return cli.Usage(errors.New("--unsigned: there is --trust"))
			}
			p, err := a.publisher(cmd.Context())
			if err != nil {
				return err
			}
			if len(args) == 0 {
				if args, err = p.ExistingChannels(cmd.Context()); err != nil {
					return err
				}
			}
			all := []publish.Finding{}
			for _, channel := range args {
				found, err := p.Verify(cmd.Context(), channel, images)
				if err != nil {
					return err
				}
				all = append(all, found...)
				if len(a.flags.trust) == 0 && !a.flags.unsigned {
					all = append(all, publish.Finding{
						Channel: channel, Object: channel, Problem: "its signature was not checked: --trust FILE is missing",
					})
				}
			}
			return a.printFindings(len(args), all)
		},
	}
	cmd.Flags().BoolVar(&images, "images", false, "ask the registries of all images, too")
	cmd.Flags().BoolVar(&a.flags.unsigned, "unsigned", false, "the catalog has no signatures")
	return a.withOutput(cmd)
}

func (a *app) printFindings(channels int, all []publish.Finding) error {
	err := a.print(all, func(page *terminal.Page) {
		for _, f := range all {
			page.Item("", fmt.Sprintf("%s: %s: %s", f.Channel, f.Object, f.Problem))
		}
		if len(all) == 0 {
			text := " checked, all is well."
			if a.flags.unsigned {
				text = " checked but for signatures, all is well."
			}
			page.Line(terminal.Plural(channels, "channel") + text)
		}
	})
	if err == nil && len(all) > 0 {
		return cli.Exit(exitFailed)
	}
	return err
}
