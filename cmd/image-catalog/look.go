// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/kubic-project/image-update-agent/internal/catalog/publish"
	"github.com/kubic-project/image-update-agent/internal/face/cli"
	"github.com/kubic-project/image-update-agent/internal/face/terminal"
)

func (a *app) diffCommand() *cobra.Command {
	return a.withOutput(&cobra.Command{
		Use:   "diff FROM TO",
		Short: "Compare two channels, or two versions of one",
		Long: `diff shows each image whose newest release differs, with what FROM says of its releases since
that of TO, and each release that one channel has withdrawn and the other still offers.
promote skips what was withdrawn from TO. FROM and TO may be versions: CHANNEL@VERSION.

Exit status: 0 they differ, 3 they offer the same.`,
		Example: `  image-catalog diff stage prod
  image-catalog diff prod@31 prod@30
  image-catalog diff stage prod --output json`,
		Args: wantArgs(false, "FROM", "TO"),
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := a.publisher(cmd.Context())
			if err != nil {
				return err
			}
			from, err := read(cmd.Context(), p, args[0])
			if err != nil {
				return err
			}
			to, err := read(cmd.Context(), p, args[1])
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
			if text := d.Summary(); text != "" {
				change += "; " + text
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
		Short: "Check the signatures and the content of channels",
		Long: `verify checks all channels, or the named ones: the signature against the keys of --trust, each
page, the log, the version tags, when the channel expires, and pending changes. With --images
it also checks that the registries have all releases that are offered. verify reports a
signature that it cannot check because --trust is missing, unless you use --unsigned.

Exit status: 0 no problems, 1 problems were found, or there is no channel.`,
		Example: `  image-catalog verify --trust stage=ci.pub --trust prod=prod.pub
  image-catalog verify prod --images --trust prod.pub`,
		RunE: func(cmd *cobra.Command, args []string) error { return a.verify(cmd.Context(), args, images) },
	}
	cmd.Flags().BoolVar(&images, "images", false, "also ask the registries of all images")
	cmd.Flags().BoolVar(&a.flags.unsigned, "unsigned", false, "do not check signatures")
	return a.withOutput(cmd)
}

func (a *app) verify(ctx context.Context, channels []string, images bool) error {
	if a.flags.unsigned && len(a.flags.trust) > 0 {
		return cli.Usage(errors.New("--unsigned and --trust exclude each other"))
	}
	for _, channel := range channels {
		if err := publish.CheckChannel(channel); err != nil {
			return err
		}
	}
	p, err := a.publisher(ctx)
	if err != nil {
		return err
	}
	if len(channels) == 0 {
		if channels, err = p.ExistingChannels(ctx); err != nil {
			return err
		}
	}
	if err := a.checkScope(channels); err != nil {
		return err
	}
	all := []publish.Finding{}
	for _, channel := range channels {
		found, err := p.Verify(ctx, channel, images)
		if err != nil {
			return err
		}
		all = append(all, found...)
		if len(a.flags.trust) == 0 && !a.flags.unsigned {
			all = append(all, publish.Finding{
				Channel: channel, Object: channel, Problem: "signature not checked: --trust FILE is missing",
			})
		}
	}
	return a.printFindings(len(channels), all)
}

func (a *app) printFindings(channels int, all []publish.Finding) error {
	err := a.print(all, func(page *terminal.Page) {
		for _, f := range all {
			object := f.Channel
			if f.Object != f.Channel {
				object += ": " + f.Object
			}
			page.Item("", object+": "+f.Problem)
		}
		if len(all) == 0 {
			text := " checked, no problems found."
			if a.flags.unsigned {
				text = " checked except for signatures, no problems found."
			}
			page.Line(terminal.Plural(channels, "channel") + text)
		}
	})
	if err == nil && len(all) > 0 {
		return cli.Exit(exitFailed)
	}
	return err
}
