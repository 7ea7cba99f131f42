// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/containerd/platforms"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/spf13/cobra"

	"github.com/kubic-project/image-update-agent/internal/base/wait"
	"github.com/kubic-project/image-update-agent/internal/catalog"
	"github.com/kubic-project/image-update-agent/internal/catalog/ops"
	"github.com/kubic-project/image-update-agent/internal/catalog/publish"
	"github.com/kubic-project/image-update-agent/internal/face/cli"
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

A batch has one image in each line, and behind it the name of its set, if it has one. If one
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
		return nil, cli.Usage(fmt.Errorf("--batch %s: it names no image", batch))
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
	all, err := publish.ParseBatch(from)
	bad, isBad := errors.AsType[*publish.BatchError](err)
	if !isBad {
		return all, err
	}
	for _, line := range bad.Lines {
		all = append(all, publish.Wanted{Line: line.Number, Text: line.Text, Err: line.Err})
	}
	return all, nil
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
