// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubic-project/image-update-agent/internal/base/outside"
	"github.com/kubic-project/image-update-agent/internal/face/cli"
	"github.com/kubic-project/image-update-agent/internal/face/terminal"
)

// streams are the program's three files; tests give their own.
type streams struct {
	in       io.Reader
	out, err io.Writer
}

// app is the state that all verbs share. Text for out and err is made printable; files are
// the streams as they are.
type app struct {
	streams
	files    streams
	flags    flags
	progress *progress
	now      func() time.Time
	zone     *time.Location // of who reads the text
	grace    atomic.Int64   // how long an interrupted verb may take to end, a time.Duration
}

// execute runs one verb, and returns the exit code.
func execute(ctx context.Context, args []string, s streams) int {
	a := newApp(s)
	cmd := a.command()
	cli.SetArgs(cmd, args)
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
	case <-time.After(time.Duration(a.grace.Load())):
	}
	fmt.Fprintf(a.err, "%s: error: %v\n", program, context.Cause(ctx))
	return exitFailed
}

const program = "image-catalog"

// grace is how long an interrupted verb may take to end. A verb that takes longer waits for a
// terminal, a pipe or a disk, and cannot be woken.
const grace = time.Second

func newApp(s streams) *app {
	a := &app{
		streams: streams{in: s.in, out: outside.NewWriter(s.out), err: outside.NewWriter(s.err)},
		files:   s, progress: newProgress(s.err), now: time.Now, zone: time.Local,
	}
	a.grace.Store(int64(grace))
	return a
}

func (a *app) command() *cobra.Command {
	showVersion := false
	cmd := &cobra.Command{
		Use:   program,
		Short: "Publish release catalogs: stage gets every build, prod what you promote",
		Long: `image-catalog publishes release catalogs in an OCI registry. A catalog lists the releases
of images by digest, in channels: stage gets every build, prod what you promote from it,
in sets and rollouts. A withdrawn release stays listed with the reason.

Several publishers may run at once, without a lock. If one is stopped, the next one
completes its change.`,
		Example: `  export IMAGE_CATALOG=registry.example.com/releases/catalog
  image-catalog init stage --key ci.key
  image-catalog init prod --key prod.key
  image-catalog add stage registry.example.com/velum:4.0.0-rev2-build1.5 --key ci.key
  image-catalog diff stage prod
  image-catalog promote stage prod velum --rollout 48h --key prod.key --trust ci.pub`,
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
	cmd.SetFlagErrorFunc(flagError)
	cmd.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	group(cmd, "Setup", a.keygenCommand(), a.initCommand())
	group(cmd, "Release", a.addCommand(), a.promoteCommand(), a.rolloutCommand(), a.withdrawCommand(),
		a.noteCommand(),
		a.freezeCommand(), a.unfreezeCommand(), a.publishCommand())
	group(cmd, "Show", a.listCommand(), a.fleetCommand(), a.diffCommand(), a.inspectCommand(), a.logCommand(),
		a.imagesCommand())
	group(cmd, "Maintenance", a.refreshCommand(), a.verifyCommand(), a.pruneCommand())
	cmd.AddCommand(cli.VersionCommand(a.out, program, version, func(v any) error { return cli.PrintJSON(a.out, v) }))
	cli.Strict(cmd)
	return cmd
}

// group adds verbs under a title of their own.
func group(cmd *cobra.Command, title string, verbs ...*cobra.Command) {
	cmd.AddGroup(&cobra.Group{ID: title, Title: title + " Commands:"})
	for _, verb := range verbs {
		verb.GroupID = title
	}
	cmd.AddCommand(verbs...)
}

// flagError says what a flag accepts, in the place of the error of Go's strconv.
func flagError(cmd *cobra.Command, err error) error {
	if text, cause, is := strings.Cut(err.Error(), ": strconv."); is {
		want := "a number"
		if strings.HasPrefix(cause, "ParseBool") {
			want = "true or false"
		}
		err = fmt.Errorf("%s: want %s", text, want)
	}
	return cli.FlagError(cmd, err)
}

// wantArgs requires an argument for each name; with more, the last one may be repeated.
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
