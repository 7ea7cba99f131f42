// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/containerd/platforms"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/spf13/cobra"

	"github.com/kubic-project/image-update-agent/internal/base/wait"
	"github.com/kubic-project/image-update-agent/internal/base/window"
	"github.com/kubic-project/image-update-agent/internal/catalog"
	"github.com/kubic-project/image-update-agent/internal/catalog/ops"
	"github.com/kubic-project/image-update-agent/internal/catalog/publish"
	"github.com/kubic-project/image-update-agent/internal/face/cli"
	"github.com/kubic-project/image-update-agent/internal/face/terminal"
)

func (a *app) addCommand() *cobra.Command {
	var batch, set string
	var on []string
	var said advisoryFlags
	cmd := &cobra.Command{
		Use:   "add CHANNEL [IMAGE...]",
		Short: "Add new builds to a channel",
		Long: `add lists builds in a channel. An IMAGE is REPOSITORY:TAG, or REPOSITORY:TAG@DIGEST, which also
checks that the tag names this digest. The tag must name one build for good. add refuses a
name such as latest, a tag that a longer tag of the same image extends (1.25 beside 1.25.3),
and a tag that moves while it is read. The registry must have the image for all platforms.
A build that the channel lists already stays as it is; --set also puts it into the set.

--severity, --fixes and --note say what the builds are good for; promotions keep it, and the
verb note changes it.

A batch file has one image per line, followed by the name of its set, if it has one. If one
line is wrong, add publishes nothing and names all lines that are wrong.

Exit status: 0 published, 3 the channel lists all of it already.`,
		Example: `  image-catalog add stage registry.example.com/velum:4.0.0-rev2-build1.5 --key ci.key
  image-catalog add stage registry.example.com/velum:4.0.0-rev2-build1.6 --severity important \
    --fixes CVE-2026-1234,bsc#1234567 --key ci.key
  image-catalog add stage --set caasp-4.5.2 --batch builds.txt --key ci.key
  image-catalog add stage --batch builds.txt --dry-run`,
		Args: wantArgs(true, "CHANNEL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := cmp.Or(publish.CheckChannel(args[0]), checkSet(set)); err != nil {
				return err
			}
			advisory, err := said.read(cmd)
			if err != nil {
				return err
			}
			wanted, err := a.wanted(cmd.Context(), args[1:], batch)
			if err != nil {
				return err
			}
			for n := range wanted {
				wanted[n].Set, wanted[n].Advisory = cmp.Or(wanted[n].Set, set), advisory.Of(nil)
			}
			return a.add(cmd.Context(), args[0], wanted, on)
		},
	}
	cmd.Flags().StringVar(&batch, "batch", "", "also add the images of this file; - is the standard input")
	cmd.Flags().StringVar(&set, "set", "", "put the images into this set, which nodes apply as a whole")
	cmd.Flags().StringArrayVar(&on, "platform", []string{"linux/amd64"}, "platform that images must support (repeatable)")
	said.define(cmd)
	_ = cmd.MarkFlagFilename("batch") // just defined
	return a.withOut(cmd)
}

// add checks images, and adds them to a channel.
func (a *app) add(ctx context.Context, channel string, wanted []publish.Wanted, on []string) error {
	platforms, err := platformsOf(on)
	if err != nil {
		return err
	}
	p, err := a.publisher(ctx)
	if err != nil {
		return err
	}
	changes, err := p.Added(ctx, wanted, platforms)
	if err != nil {
		return err
	}
	return a.change(ctx, p, channel, publish.Ask(ops.Want{Do: catalog.ActionAdd, Changes: changes}), publish.How{})
}

// checkSet checks --set, if it is given.
func checkSet(set string) error {
	if set == "" {
		return nil
	}
	if err := catalog.CheckSet(set); err != nil {
		return cli.Usage(fmt.Errorf("--set: %w", err))
	}
	return nil
}

// wanted returns the images of the arguments and of a batch.
func (a *app) wanted(ctx context.Context, args []string, batch string) ([]publish.Wanted, error) {
	all, err := wait.Result(ctx, func() ([]publish.Wanted, error) { return a.batch(batch) })
	if err != nil {
		return nil, err
	}
	for _, text := range args {
		image, err := publish.ParseImage(text)
		all = append(all, publish.Wanted{Text: text, Image: image, Err: err})
	}
	if len(all) == 0 && batch != "" {
		return nil, cli.Usage(fmt.Errorf("--batch %s: names no image", batch))
	}
	if len(all) == 0 {
		return nil, cli.Usage(errors.New("want IMAGE... or --batch FILE"))
	}
	return all, nil
}

// batch returns the images of a batch, also those that cannot be read, so that one error names all that are wrong.
func (a *app) batch(file string) ([]publish.Wanted, error) {
	from := a.in
	switch file {
	case "":
		return nil, nil
	case "-":
	default:
		f, err := os.Open(file)
		if err != nil {
			return nil, fmt.Errorf("--batch: %w", err)
		}
		defer f.Close()
		from = f
	}
	return publish.ParseBatch(from)
}

func platformsOf(texts []string) ([]ocispec.Platform, error) {
	var out []ocispec.Platform
	for _, text := range texts {
		p, err := platforms.Parse(text)
		if err != nil {
			return nil, cli.Usage(fmt.Errorf("--platform: %w", err))
		}
		out = append(out, p)
	}
	return out, nil
}

func (a *app) noteCommand() *cobra.Command {
	var said advisoryFlags
	cmd := &cobra.Command{
		Use:   "note CHANNEL IMAGE:TAG...",
		Short: "Say what releases are good for: severity, fixes, a note",
		Long: `note says what listed releases are good for, or changes it: the severity, which problems they
fix, and a note in one line. A missing flag changes nothing, and an empty one removes its
value. Nodes and people read the values, which do not change what a channel offers.

Each channel has notes of its own: promote copies that of FROM if TO has none yet.

Exit status: 0 published, 3 the channel says so already.`,
		Example: `  image-catalog note prod velum:4.0.0-rev2-build1.6 --severity important \
    --fixes CVE-2026-1234,bsc#1234567 --key prod.key
  image-catalog note prod velum:4.0.0-rev2-build1.6 --note "" --key prod.key`,
		Args: wantArgs(true, "CHANNEL", "IMAGE:TAG"),
		RunE: func(cmd *cobra.Command, args []string) error {
			what, err := said.read(cmd)
			if err != nil {
				return err
			}
			if what == (publish.Noted{}) {
				return cli.Usage(errors.New("want --severity, --fixes or --note"))
			}
			return a.ask(cmd.Context(), args[0], publish.Note(args[1:], what), publish.How{})
		},
	}
	said.define(cmd)
	return a.withOut(cmd)
}

// advisoryFlags are the flags that say what releases are good for.
type advisoryFlags struct {
	severity, note string
	fixes          []string
}

func (f *advisoryFlags) define(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.severity, "severity", "", "low, moderate, important or critical")
	cmd.Flags().StringArrayVar(&f.fixes, "fixes", nil,
		"what the releases fix, as CVE-2026-1234,bsc#1234567 (repeatable)")
	cmd.Flags().StringVar(&f.note, "note", "", "what else their admins should know; one line of at most 512 bytes")
}

// read returns what the flags that were given say.
func (f *advisoryFlags) read(cmd *cobra.Command) (n publish.Noted, err error) {
	if cmd.Flags().Changed("severity") {
		var severity catalog.Severity
		if f.severity != "" {
			if severity, err = catalog.ParseSeverity(f.severity); err != nil {
				return n, cli.Usage(fmt.Errorf("--severity: %w", err))
			}
		}
		n.Severity = &severity
	}
	if cmd.Flags().Changed("fixes") {
		var fixes []string
		if len(f.fixes) != 1 || f.fixes[0] != "" {
			if fixes, err = catalog.ParseFixes(f.fixes...); err != nil {
				return n, cli.Usage(fmt.Errorf("--fixes: %w", err))
			}
		}
		n.Fixes = &fixes
	}
	if cmd.Flags().Changed("note") {
		if err := catalog.CheckReason(f.note); err != nil {
			return n, cli.Usage(fmt.Errorf("--note: %w", err))
		}
		n.Note = &f.note
	}
	return n, nil
}

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
			return a.ask(cmd.Context(), args[0], publish.Withdraw(w), publish.How{})
		},
	}
	cmd.Flags().StringVar(&w.Set, "set", "", "all releases of this set")
	cmd.Flags().StringVar(&w.Reason, "reason", "", "why: nodes show it to their admins; one line of at most 512 bytes")
	cmd.Flags().StringArrayVar(&w.Instead, "instead", nil,
		"tag to run instead; for several images, IMAGE:TAG (repeatable)")
	return a.withOut(cmd)
}

func (a *app) freezeCommand() *cobra.Command {
	var until, reason string
	cmd := &cobra.Command{
		Use:   "freeze CHANNEL --until TIME",
		Short: "Refuse add and promote in a channel until a time",
		Long: `freeze makes add and promote refuse changes to a channel until a time. withdraw, refresh,
promote --revert and rollout --pause still work. Nodes do not see a freeze: they go on with
what the channel offers. A change that another publisher asked for at the same time may still
arrive, and the result names it.`,
		Example: `  image-catalog freeze prod --until 2026-12-28 --reason "holidays" --key prod.key
  image-catalog freeze prod --until 8h --key prod.key`,
		Args: wantArgs(false, "CHANNEL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if until == "" {
				return cli.Usage(errors.New("--until TIME is missing, for example " + window.Moments))
			}
			end, err := a.end("until", until)
			if err != nil {
				return err
			}
			return a.ask(cmd.Context(), args[0], publish.Freeze(end), publish.How{Reason: reason})
		},
	}
	cmd.Flags().StringVar(&until, "until", "", "when the freeze ends: "+window.Moments)
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the log")
	return a.withOut(cmd)
}

func (a *app) unfreezeCommand() *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:     "unfreeze CHANNEL",
		Short:   "End a freeze",
		Long:    "unfreeze ends a freeze before its time.\n\nExit status: 0 published, 3 the channel was not frozen.",
		Example: "  image-catalog unfreeze prod --key prod.key",
		Args:    wantArgs(false, "CHANNEL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.ask(cmd.Context(), args[0], publish.Freeze(time.Time{}), publish.How{Reason: reason})
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the log")
	return a.withOut(cmd)
}

// ask changes a channel and prints the result.
func (a *app) ask(ctx context.Context, channel string, do publish.Verb, how publish.How) error {
	p, err := a.publisher(ctx)
	if err != nil {
		return err
	}
	return a.change(ctx, p, channel, do, how)
}

// change is ask with a publisher that has looked at what is asked for.
func (a *app) change(
	ctx context.Context, p *publish.Publisher, channel string, do publish.Verb, how publish.How,
) error {
	how.DryRun, how.Out = a.flags.dryRun, a.flags.out
	return a.printResult(p.Change(ctx, channel, do, how))
}

// printResult prints a result, unless there is an error. If there was nothing to do, it returns exitNothing.
func (a *app) printResult(r publish.Result, err error) error {
	if err == nil {
		err = a.print(r, func(page *terminal.Page) { a.writeResult(page, r) })
	}
	if err == nil && !r.Changed {
		err = cli.Exit(exitNothing)
	}
	return err
}

func (a *app) writeResult(page *terminal.Page, r publish.Result) {
	var rows [][]string
	for _, o := range r.Outcomes {
		mark := "  "
		switch {
		case o.Changed && o.Steered:
			mark = "~ "
		case o.Changed && o.Withdrawn:
			mark = "- "
		case o.Changed:
			mark = "+ "
		}
		rows = append(rows, []string{mark + o.Image + ":" + o.Tag, o.Note})
	}
	page.Rows(rows)
	for _, o := range r.Others {
		page.Item("* ", otherSentence(page, o))
	}
	switch {
	case !r.Changed:
		page.Line(fmt.Sprintf("Nothing to do: %s stays at version %d.", r.Channel, r.Version))
	case a.flags.dryRun:
		page.Line(fmt.Sprintf("Would publish %s, version %d.", r.Channel, r.Version))
	case a.flags.out != "":
		page.Line(fmt.Sprintf("Wrote %s, version %d, to %s: sign %s, then run image-catalog publish.",
			r.Channel, r.Version, a.flags.out, publish.PayloadFile))
	default:
		page.Line(fmt.Sprintf("Published %s, version %d, %s.", r.Channel, r.Version, r.Digest))
		if len(a.flags.keys) == 0 && len(a.flags.trust) == 0 {
			page.Line("It is not signed: nodes refuse it unless they set catalog.signatures: off.")
		}
	}
	if !r.Expires.IsZero() {
		page.Line("It expires at " + page.Next(r.Expires) + ".")
	}
	if a.now().Before(r.Frozen) {
		page.Line("It is frozen until " + page.Next(r.Frozen) + ".")
	}
	for _, w := range r.Waiting {
		page.Line(fmt.Sprintf("Not published yet: %s: %s", w.Op, w.Why))
	}
}

// otherSentence names a change of somebody else that is in the version: who has asked for it, when, and for what.
func otherSentence(page *terminal.Page, o publish.Other) string {
	what := map[catalog.Action]string{
		catalog.ActionAdd: "added", catalog.ActionPromote: "promoted or steered", catalog.ActionWithdraw: "withdrew",
		catalog.ActionRefresh: "set when the channel expires", catalog.ActionFreeze: "froze or unfroze the channel",
		catalog.ActionNote: "noted something of",
	}[o.Do]
	if len(o.Releases) > 0 {
		what += " " + strings.Join(o.Releases, ", ")
	}
	text := fmt.Sprintf("also in this version: %s %s at %s", cmp.Or(o.By, "somebody"), what, page.Clock(o.At))
	if len(o.Keys) > 0 {
		text += ", key " + strings.Join(o.Keys, ", ")
	}
	if o.Reason != "" {
		text += ": " + o.Reason
	}
	return text + " (" + o.Op + ")"
}
