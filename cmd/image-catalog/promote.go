// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubic-project/image-update-agent/internal/base/window"
	"github.com/kubic-project/image-update-agent/internal/catalog"
	"github.com/kubic-project/image-update-agent/internal/catalog/publish"
	"github.com/kubic-project/image-update-agent/internal/face/cli"
)

// promotion has the flags of promote.
type promotion struct {
	publish.Selection

	rollout, start, soaked string
	now, revert            bool
	reason                 string
}

const promoteLong = `promote lists releases of channel FROM in channel TO: an IMAGE is REPOSITORY:TAG, or
REPOSITORY for its newest release. The end of the repository is enough. Releases in
between are skipped. A release that fell off its page is found in earlier versions.

promote skips and names what was withdrawn from TO, under any tag. Only REPOSITORY:TAG with
--withdrawn offers it again.

A set is promoted as a whole, with one time for all of it, or not at all: with --set, and
with --all, which adds the other members of the sets of the newest releases. If an IMAGE
belongs to a set, name all of the set.

With --soaked, promote takes only what FROM has offered that long without withdrawing it: the
newest such release of each image.

With --rollout, nodes get the release one after the other: each at a time of its own
within that span. A release that is promoted again keeps the rollout that is under way,
also with the same span. Another span begins now, or at --start, and --now ends it.

--trust FILE names a key of FROM, which says only what FROM offers. The keys of TO are those of
--key, or of --trust TO=FILE.

"promote CHANNEL --revert" goes back to the newest version that offered other releases, and
"promote CHANNEL@VERSION --revert" to that version. It publishes one new version, which withdraws
what came since, and names the earlier release to run instead. What was withdrawn before stays
withdrawn, and is named; rollouts and a freeze stay as they are. Repeated, the command does
nothing. Nodes go back only if they set catalog.allowLower.

Exit status: 0 published, 3 TO lists all of it already.`

const promoteExample = `  image-catalog promote stage prod velum --rollout 48h --key prod.key --trust ci.pub
  image-catalog promote stage prod --all --soaked 24h --key prod.key --trust ci.pub
  image-catalog promote stage prod --set caasp-4.5.2 --out to-sign --trust ci.pub --trust prod=prod.pub
  image-catalog promote stage prod caasp/v4/velum:4.0.0-rev2-build1.5 --dry-run
  image-catalog promote stage prod velum:4.0.0-rev1-build1.4 --withdrawn --key prod.key
  image-catalog promote prod --revert --reason "bsc#1199876" --key prod.key`

func (a *app) promoteCommand() *cobra.Command {
	var o promotion
	cmd := &cobra.Command{
		Use:   "promote FROM TO [IMAGE...]",
		Short: "List releases of one channel in another",
		Long:  promoteLong, Example: promoteExample,
		Args: func(cmd *cobra.Command, args []string) error {
			if o.revert {
				return wantArgs(false, "CHANNEL")(cmd, args)
			}
			if err := wantArgs(true, "FROM", "TO")(cmd, args); err != nil {
				return err
			}
			if args[0] == args[1] {
				return cli.Usage(fmt.Errorf("%s: FROM and TO are the same channel", args[0]))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := exclusive(cmd, "revert", "set", "all", "withdrawn", "soaked", "rollout", "now"); err != nil {
				return err
			}
			if err := exclusive(cmd, "now", "rollout"); err != nil {
				return err
			}
			if o.revert {
				return a.revert(cmd, args[0], o)
			}
			o.Images = args[2:]
			return a.promote(cmd, args[0], args[1], o)
		},
	}
	o.define(cmd)
	return a.withOut(cmd)
}

func (o *promotion) define(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.Set, "set", "", "all releases of this set")
	cmd.Flags().BoolVar(&o.All, "all", false, "the newest release of each image")
	cmd.Flags().BoolVar(&o.Withdrawn, "withdrawn", false,
		"offer again what was withdrawn from TO; give each IMAGE with its tag")
	cmd.Flags().StringVar(&o.soaked, "soaked", "", "only what FROM has offered this long: 24h, 7d")
	cmd.Flags().StringVar(&o.rollout, "rollout", "", "spread the nodes over this time: 48h, 7d")
	cmd.Flags().StringVar(&o.start, "start", "", "when the rollout begins (default: now): "+window.Moments)
	cmd.Flags().BoolVar(&o.now, "now", false, "end a rollout that is under way: all nodes at once")
	cmd.Flags().BoolVar(&o.revert, "revert", false,
		"undo what came after the previous version, or after CHANNEL@VERSION")
	cmd.Flags().StringVar(&o.reason, "reason", "", "reason, for the log; nodes show the reason of --revert")
}

// check checks that the flags fit together.
func (o *promotion) check() (err error) {
	given := 0
	for _, is := range []bool{len(o.Images) > 0, o.Set != "", o.All} {
		if is {
			given++
		}
	}
	switch {
	case given != 1:
		return cli.Usage(errors.New("want either IMAGE..., --set NAME or --all"))
	case o.Withdrawn && len(o.Images) == 0:
		return cli.Usage(errors.New("--withdrawn: give each release as REPOSITORY:TAG"))
	case o.soaked != "":
		o.Soaked, err = span("soaked", o.soaked)
	}
	return err
}

func (a *app) promote(cmd *cobra.Command, from, to string, o promotion) error {
	if err := o.check(); err != nil {
		return err
	}
	channel, _, _ := strings.Cut(from, "@")
	if err := a.checkTrust(channel, to); err != nil {
		return err
	}
	rollout, err := a.rollout(o.rollout, o.start)
	if err != nil {
		return err
	}
	ctx := cmd.Context()
	a.flags.from = channel
	p, err := a.publisher(ctx)
	if err != nil {
		return err
	}
	offer, err := find(ctx, p, from, p.Offer)
	if err != nil {
		return err
	}
	return a.change(ctx, p, to, publish.Promote(offer, publish.Promotion{
		Selection: o.Selection, Rollout: rollout, Keep: !o.now && o.start == "",
	}), publish.How{Reason: o.reason})
}

// revert goes back to an earlier version of a channel.
func (a *app) revert(cmd *cobra.Command, word string, o promotion) error {
	channel, _, hasVersion := strings.Cut(word, "@")
	version := uint64(0)
	if hasVersion {
		var err error
		if channel, version, err = parseVersion(word); err != nil {
			return err
		}
	}
	return a.ask(cmd.Context(), channel, publish.Revert(version, o.reason), publish.How{})
}

// rollout reads --rollout and --start; nil: there is none.
func (a *app) rollout(span, start string) (*catalog.Rollout, error) {
	if span == "" {
		if start != "" {
			return nil, cli.Usage(errors.New("--start requires --rollout"))
		}
		return nil, nil //nolint:nilnil // nil is at once
	}
	count, err := hours("rollout", span)
	if err != nil {
		return nil, err
	}
	from := a.now().UTC().Truncate(time.Second)
	if start != "" {
		if from, err = window.ParseMoment(start, a.now()); err != nil {
			return nil, cli.Usage(fmt.Errorf("--start %w", err))
		}
	}
	return &catalog.Rollout{From: from.UTC(), Hours: count}, nil
}

func (a *app) publishCommand() *cobra.Command {
	var signatures []string
	cmd := &cobra.Command{
		Use:   "publish DIR --signature FILE --trust FILE",
		Short: "Publish a version that was signed elsewhere",
		Long: `publish publishes the version that another command wrote into DIR with --out, with the
signature of DIR/payload.json: bytes or base64. A key of --trust must have made the signature,
because nodes refuse any other. If the channel has changed since, publish stores nothing. You
can repeat publish after an error. --dry-run needs neither, and shows what the version changes:
each release, and each change (op) with who asked for it and when.

Exit status: 0 published, 3 the channel has this version already.`,
		Example: `  cosign sign-blob --key prod.key --tlog-upload=false to-sign/payload.json >to-sign.sig
  openssl dgst -sha256 -sign prod.pem -out to-sign.sig to-sign/payload.json
  image-catalog publish to-sign --signature to-sign.sig --trust prod.pub`,
		Args: wantArgs(false, "DIR"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(signatures) == 0 && !a.flags.dryRun {
				return cli.Usage(errors.New("--signature FILE is missing"))
			}
			if len(a.flags.trust) == 0 && !a.flags.dryRun {
				return cli.Usage(errors.New("--trust FILE is missing: the public key that checks the signature"))
			}
			sigs, err := readSignatures(cmd.Context(), signatures)
			if err != nil {
				return err
			}
			repository, name, err := publish.CatalogOf(args[0])
			if err != nil {
				return err
			}
			if a.flags.catalog == "" {
				a.flags.catalog = repository
			}
			if a.flags.name == "" {
				a.flags.name = name
			}
			p, err := a.publisher(cmd.Context())
			if err != nil {
				return err
			}
			return a.printResult(p.PublishDir(cmd.Context(), args[0], sigs, a.flags.dryRun))
		},
	}
	cmd.Flags().StringArrayVar(&signatures, "signature", nil, "file with a signature of DIR/payload.json (repeatable)")
	cmd.Flags().BoolVarP(&a.flags.dryRun, "dry-run", "n", false, "check everything, and publish nothing")
	_ = cmd.MarkFlagFilename("signature") // just defined
	cmd.ValidArgsFunction = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return nil, cobra.ShellCompDirectiveFilterDirs
	}
	return a.withOutput(cmd)
}

// readSignatures reads the files of --signature.
func readSignatures(ctx context.Context, files []string) ([][]byte, error) {
	var sigs [][]byte
	for _, file := range files {
		data, err := readFile(ctx, file, maxKeyFile)
		if err != nil {
			return nil, fmt.Errorf("--signature: %w", err)
		}
		sigs = append(sigs, data)
	}
	return sigs, nil
}
