// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
	"github.com/kubic-project/image-update-agent/internal/face/cli"
	"github.com/kubic-project/image-update-agent/internal/face/terminal"
)

// streams are the program's three files; tests give their own.
type streams struct {
	in       io.Reader
	out, err io.Writer
}

// app is what every verb shares: the streams and the global flags. What is written to
// out and err is made printable; files are the streams as they are.
type app struct {
	streams
	files  streams
	config string      // --config
	root   string      // --root
	output string      // --output
	quiet  bool        // --quiet
	waits  waiting     // --timeout
	acts   atomic.Bool // something is under way that the verb itself has to end, interrupted or not
	leaves atomic.Bool // an interrupted verb still hears from the daemon what goes on without it
	// invalid is why the configuration is not valid, for a verb that a daemon does all the same.
	invalid error
	aside   []string // pod manifests that are set aside then
	away    bool     // no daemon answers: what is shown is the last that one has written
	// onWire is put around what goes to registries; nil: nothing.
	onWire func(http.RoundTripper) http.RoundTripper
	// meter counts what a daemon does, over all its wirings; nil: nothing is counted.
	meter agent.Meter
	zone  *time.Location // of who reads the text
}

// execute runs one verb and returns the exit code.
func execute(ctx context.Context, args []string, s streams) int {
	a := newApp(s)
	cmd := a.command()
	cli.SetArgs(cmd, args)
	cmd.SetIn(a.in)
	cmd.SetOut(a.out)
	cmd.SetErr(a.err)
	return a.execute(ctx, cmd)
}

// execute runs a verb to its end, or until ctx ends; package cli says how.
func (a *app) execute(ctx context.Context, cmd *cobra.Command) (code int) {
	defer func() {
		if code == exitFailed {
			code = codeOf(context.Cause(ctx), code)
		}
	}()
	ended := make(chan int, 1)
	go func() {
		verb, err := cmd.ExecuteContextC(ctx)
		ended <- a.explain(verb, err)
	}()
	select {
	case code := <-ended:
		return code
	case <-ctx.Done():
	}
	if a.acts.Load() {
		return <-ended
	}
	patience := grace
	if a.leaves.Load() {
		patience = leaveGrace
	}
	select {
	case code := <-ended:
		return code
	case <-time.After(patience):
	}
	said := make(chan struct{})
	go func() {
		defer close(said)
		fmt.Fprintf(a.err, "image-update-agent: error: %s\n", outside.Mask(context.Cause(ctx).Error()))
	}()
	select {
	case <-said:
	case <-time.After(grace): // standard error is stuck, too
	}
	return exitFailed
}

// grace is how long an interrupted verb has to end by itself, which takes
// milliseconds. One that takes longer waits for a terminal, a pipe or a disk, and
// cannot be woken.
const grace = time.Second

// leaveGrace is grace for a verb that leaves the daemon: a little longer than its client waits for the answer.
const leaveGrace = 12 * time.Second

func newApp(s streams) *app {
	shown := streams{in: s.in, out: outside.NewWriter(s.out), err: outside.NewWriter(s.err)}
	return &app{streams: shown, files: s, zone: time.Local}
}

// document writes a file that was asked for: to the byte, but to a terminal as text.
func (a *app) document(data []byte) error {
	w := a.files.out
	if terminal.Is(w) {
		w = a.out
	}
	_, err := w.Write(data)
	return err
}

func (a *app) command() *cobra.Command {
	showVersion := false
	cmd := &cobra.Command{
		Use:   "image-update-agent",
		Short: "Update the container images of static pods without a reboot",
		Long: `image-update-agent looks for newer images of the static pods of this node, pulls them in
advance, renders the pod manifests and reports the update, for example by a Salt grain. An
administrator then applies it. No pod is restarted without approval.`,
		Example: `  image-update-agent status            show what is running, and what is available
  image-update-agent check             ask the registries now
  image-update-agent apply velum       apply the staged update of velum
  image-update-agent doctor            check the node`,
		SilenceErrors: true, SilenceUsage: true,
		SuggestionsMinimumDistance: 2, // cobra sets its default only on its own way to an error
		Args:                       cli.NoArgs,
		PersistentPreRunE:          checkPaths,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if showVersion {
				return cli.PrintVersion(a.out, "image-update-agent", version)
			}
			return cmd.Help()
		},
	}
	// Of our own, as cobra's brings its templates (see GO_TAGS in the Makefile).
	cmd.Flags().BoolVar(&showVersion, "version", false, "print the version")
	cmd.PersistentFlags().StringVar(&a.config, "config", "",
		"read this file instead of /etc/image-update-agent/config.yaml and its drop-ins")
	cmd.PersistentFlags().StringVar(&a.root, "root", "/",
		"absolute path below which the host's /etc, /usr, /var and /run are")
	cmd.SetFlagErrorFunc(cli.FlagError)
	addGroup(cmd, "daily", "Daily Commands:", a.statusCommand(), a.checkCommand(), a.planCommand(), a.changesCommand(),
		a.applyCommand(), a.rollbackCommand(), a.historyCommand(), a.holdCommand(), a.resumeCommand())
	addGroup(cmd, "node", "Node Commands:", a.doctorCommand(), a.configCommand(), a.runCommand(), a.catalogCommand(),
		a.localRegistryCommand(), a.lockCommand())
	addGroup(cmd, "tools", "Tools:", a.previewCommand(), a.tagsCommand(), a.manifestsCommand(),
		cli.VersionCommand(a.out, "image-update-agent", version, func(v any) error { return a.encoder().Encode(v) }))
	cmd.SetHelpCommandGroupID("tools")
	cmd.SetCompletionCommandGroupID("tools")
	cmd.AddCommand(a.putBackCommand(), a.hookCommand(), a.renderCommand(), a.reloadCommand(), // hidden
		a.readPackagesCommand())
	completeFiles(cmd)
	cli.Strict(cmd)
	return cmd
}

// checkPaths refuses empty paths, which most likely are the empty variable of a script,
// and would mean the host itself or another default.
func checkPaths(cmd *cobra.Command, _ []string) error {
	for _, flag := range []string{"root", "config", "source", "to"} {
		if f := cmd.Flags().Lookup(flag); f != nil && f.Changed && f.Value.String() == "" {
			return cli.Usage(fmt.Errorf("--%s: must not be empty", flag))
		}
	}
	if root := cmd.Flag("root").Value.String(); !filepath.IsAbs(root) {
		return cli.Usage(fmt.Errorf("--root %q: want an absolute path", root))
	}
	return nil
}

// group is a verb that only has subcommands.
func group(use, short string, verbs ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short, Args: cli.NoArgs, SuggestionsMinimumDistance: 2,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(verbs...)
	return cmd
}

// addGroup adds verbs under a title of the help.
func addGroup(cmd *cobra.Command, id, title string, verbs ...*cobra.Command) {
	cmd.AddGroup(&cobra.Group{ID: id, Title: title})
	for _, verb := range verbs {
		verb.GroupID = id
		cmd.AddCommand(verb)
	}
}

// withQuiet adds --quiet to a verb that acts.
func (a *app) withQuiet(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().BoolVarP(&a.quiet, "quiet", "q", false, "print errors only; the exit status says what was done")
	return cmd
}

// withOutput adds --output to a verb.
func (a *app) withOutput(cmd *cobra.Command) *cobra.Command { return cli.WithOutput(cmd, &a.output) }

// someArgs demands at least one argument.
func someArgs(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return cli.Usage(fmt.Errorf("%s: %s is required", cmd.CommandPath(), what))
		}
		return nil
	}
}

// completeFiles completes file names for the global flags that take one, and nowhere
// else, unless a verb says otherwise.
func completeFiles(cmd *cobra.Command) {
	cmd.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	// The flags were just defined, so marking cannot go wrong.
	_ = cmd.MarkPersistentFlagFilename("config", "yaml")
	_ = cmd.MarkPersistentFlagDirname("root")
}

// completeImages completes the names of images: repositories, their last parts, and pod manifests. It needs no daemon:
// the last status and the pod manifests are files.
func (a *app) completeImages(_ *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	settings, err := a.daemonSettings()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	last, err := settings.lastStatus()
	if err != nil {
		last = status.Status{}
	}
	a.invalid = nil
	entries, _ := os.ReadDir(settings.PodManifests) // a directory that cannot be read completes nothing
	for _, e := range entries {
		if isPodManifest(e) {
			last.PodManifests = append(last.PodManifests, status.PodStatus{PodManifest: e.Name()})
		}
	}
	return imageNames(last, args, begun), cobra.ShellCompDirectiveNoFileComp
}

func isPodManifest(e os.DirEntry) bool {
	return e.Type().IsRegular() && !strings.HasPrefix(e.Name(), ".") &&
		slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(e.Name()))
}

// imageNames returns the names in a status that begin with begun and are not among args, sorted.
func imageNames(s status.Status, args []string, begun string) []string {
	names := map[string]bool{}
	for _, i := range s.Images {
		names[i.Image], names[path.Base(i.Image)] = true, true
	}
	for _, p := range s.PodManifests {
		names[p.PodManifest] = true
	}
	for name := range names {
		if !strings.HasPrefix(name, begun) || slices.Contains(args, name) {
			delete(names, name)
		}
	}
	return slices.Sorted(maps.Keys(names))
}
