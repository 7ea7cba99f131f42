// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubic-project/image-update-agent/internal/cli"
	"github.com/kubic-project/image-update-agent/internal/outside"
	"github.com/kubic-project/image-update-agent/internal/terminal"
)

// streams are the program's three files; tests give their own.
type streams struct {
	in       io.Reader
	out, err io.Writer
}

// app is what every verb shares. What is written to out and err is made printable; files are
// the streams as they are.
type app struct {
	streams
	files    streams
	flags    flags
	progress *progress
	now      func() time.Time
	zone     *time.Location // of who reads the text
}

// execute runs one verb, and returns the exit code.
func execute(ctx context.Context, args []string, s streams) int {
	a := newApp(s)
	cmd := a.command()
	cmd.SetArgs(args)
	cmd.SetIn(a.in)
	cmd.SetErr(a.err)
	ended := make(chan int, 1)
	go func() {
		verb, err := cmd.ExecuteContextC(ctx)
		a.progress.end()
		ended <- a.explain(verb, err)
	}()
	select {
	case code := <-ended:
		return code
	case <-ctx.Done():
	}
	select {
	case code := <-ended:
		return code
	case <-time.After(grace):
	}
	fmt.Fprintf(a.err, "%s: error: %v\n", program, context.Cause(ctx))
	return exitFailed
}

const program = "image-catalog"

// grace is how long an interrupted verb has to end by itself. One that takes longer waits for a
// terminal, a pipe or a disk, and cannot be woken.
const grace = time.Second

func newApp(s streams) *app {
	return &app{
		streams: streams{in: s.in, out: outside.NewWriter(s.out), err: outside.NewWriter(s.err)},
		files:   s, progress: newProgress(s.err), now: time.Now, zone: time.Local,
	}
}

func (a *app) command() *cobra.Command {
	showVersion := false
	cmd := &cobra.Command{
		Use:   program,
		Short: "Publish release catalogs: stage follows every build, prod what was promoted",
		Long: `image-catalog publishes release catalogs in an OCI registry. A catalog lists the
releases of images by digest, in channels: stage gets every build, prod what was
promoted from it, in sets and rollouts, and both say what was withdrawn and why.

Several may publish at once, without a lock. One that was stopped loses nothing: the
next one completes what it asked for.`,
		Example: `  export IMAGE_CATALOG=registry.example.com/releases/catalog
  image-catalog init stage prod --key ci.key
  image-catalog add stage registry.example.com/velum:4.0.0-rev2-build1.5 --key ci.key
  image-catalog diff stage prod
  image-catalog promote stage prod velum --rollout 48h --out to-sign`,
		SilenceErrors: true, SilenceUsage: true, SuggestionsMinimumDistance: 2,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if showVersion {
				return cli.PrintVersion(a.out, program, version)
			}
			return cmd.Help()
		},
	}
	cmd.Flags().BoolVar(&showVersion, "version", false, "show the version")
	cmd.SetOut(a.out) // before the verb completion, which keeps it
	a.flags.define(cmd)
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return cli.Usage(err) })
	cmd.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	cmd.AddCommand(
		a.initCommand(), a.addCommand(), a.promoteCommand(), a.publishCommand(), a.withdrawCommand(),
		a.refreshCommand(), a.diffCommand(), a.inspectCommand(), a.verifyCommand(), a.imagesCommand(),
		a.pruneCommand(),
		cli.VersionCommand(a.out, program, version, func(v any) error { return cli.PrintJSON(a.out, v) }),
	)
	cli.Strict(cmd)
	return cmd
}

// wantArgs demands n arguments, and says what is missing; with more, there may be more of the last.
func wantArgs(more bool, names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < len(names):
			return cli.Usage(fmt.Errorf("%s: %s is missing", cmd.CommandPath(), names[len(args)]))
		case len(args) > len(names) && !more:
			return cli.Usage(fmt.Errorf("%s takes no argument %q", cmd.CommandPath(), args[len(names)]))
		}
		return nil
	}
}

// print writes a value: as JSON for programs, else as text for people.
func (a *app) print(v any, text func(page *terminal.Page)) error {
	a.progress.end()
	if a.flags.output == "json" {
		return cli.PrintJSON(a.out, v)
	}
	page := terminal.NewPage(a.files.out, a.now().In(a.zone))
	text(page)
	return page.Flush()
}
