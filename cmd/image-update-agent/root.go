// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/kubic-project/image-update-agent/agent"
)

// streams are the program's three files; tests give their own.
type streams struct {
	in       io.Reader
	out, err io.Writer
}

// app is what every verb shares: the streams and the global flags.
type app struct {
	streams
	config string // --config
	root   string // --root
	output string // --output
	away   bool   // no daemon answers: what is shown is the last that one has written
	// onWire is put around what goes to registries; nil: nothing.
	onWire func(http.RoundTripper) http.RoundTripper
	// meter counts what a daemon does, over all its wirings; nil: nobody does.
	meter agent.Meter
}

// execute runs one verb and returns the exit code.
func execute(ctx context.Context, args []string, s streams) int {
	a := &app{streams: s}
	cmd := a.command()
	cmd.SetArgs(args)
	cmd.SetIn(s.in)
	cmd.SetOut(s.out)
	cmd.SetErr(s.err)
	verb, err := cmd.ExecuteContextC(ctx)
	return a.explain(verb, err)
}

func (a *app) command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "image-update-agent",
		Short: "Keep the container images of static pods current without a reboot",
		Long: `image-update-agent asks the registry what is new for the static pods of this
node, pulls it before anyone needs it, renders the pod manifests and sets a Salt
grain, so that an admin can see the update and apply it. Nothing that runs is
restarted without approval.`,
		Example: `  image-update-agent status                 what runs, what is offered, and why not more
  image-update-agent check                  ask the registry now
  image-update-agent apply velum            bring the staged velum into use
  image-update-agent doctor                 find out what is wrong with the node`,
		SilenceErrors: true, SilenceUsage: true,
		SuggestionsMinimumDistance: 2, // cobra sets its default only on its own way to an error
		Args:                       noArgs,
		RunE:                       func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.PersistentFlags().StringVar(&a.config, "config", "",
		"read this file instead of /etc/image-update-agent/config.yaml and its drop-ins")
	cmd.PersistentFlags().StringVar(&a.root, "root", "/",
		"take the host's /etc, /usr, /var and /run below this directory")
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	cmd.AddCommand(
		a.runCommand(), a.checkCommand(), a.statusCommand(), a.planCommand(), a.applyCommand(),
		a.rollbackCommand(), a.holdCommand(), a.unholdCommand(),
		a.tagsCommand(), a.manifestsCommand(), a.configCommand(), a.doctorCommand(), a.versionCommand(), a.manCommand(),
		a.putBackCommand(), a.hookCommand(), a.renderCommand(), a.reloadCommand(),
	)
	completeFiles(cmd)
	strict(cmd)
	return cmd
}

// completeFiles has files completed for the global flags that name one, and nowhere
// else, unless a verb says otherwise.
func completeFiles(cmd *cobra.Command) {
	cmd.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	// The flags were just defined, so marking cannot go wrong.
	_ = cmd.MarkPersistentFlagFilename("config", "yaml")
	_ = cmd.MarkPersistentFlagDirname("root")
}

// strict has cobra's own verbs refuse what is none: help and completion would show
// another text, and end with 0.
func strict(cmd *cobra.Command) {
	cmd.InitDefaultHelpCmd()
	cmd.InitDefaultCompletionCmd()
	for _, verb := range cmd.Commands() {
		switch verb.Name() {
		case "help":
			verb.Args = func(_ *cobra.Command, args []string) error {
				found, rest, err := cmd.Find(args)
				if err != nil {
					return usageError{err}
				}
				return noArgs(found, rest)
			}
		case "completion":
			verb.Args = noArgs
			verb.RunE = func(verb *cobra.Command, _ []string) error { return verb.Help() }
		}
	}
}

// outputFlag adds --output to a verb.
func (a *app) outputFlag(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&a.output, "output", "o", "text", "text for people, json for programs")
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if a.output != "text" && a.output != "json" {
			return usageError{fmt.Errorf("--output %q: text or json", a.output)}
		}
		return nil
	}
	values(cmd, "output", "text", "json")
}

// values has the values of a flag completed.
func values(cmd *cobra.Command, flag string, all ...string) {
	// The flag was just defined, so registering cannot go wrong.
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(all, cobra.ShellCompDirectiveNoFileComp))
}

// noArgs refuses arguments as a usage error, and names the nearest verb.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	err := fmt.Errorf("%s takes no argument %q", cmd.CommandPath(), args[0])
	if near := cmd.SuggestionsFor(args[0]); cmd.HasSubCommands() && len(near) > 0 {
		err = fmt.Errorf("unknown command %q, did you mean %q?", args[0], near[0])
	} else if cmd.HasSubCommands() {
		err = fmt.Errorf("unknown command %q", args[0])
	}
	return usageError{err}
}

// someArgs demands at least n arguments.
func someArgs(n int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < n {
			return usageError{fmt.Errorf("%s: %s is missing", cmd.CommandPath(), what)}
		}
		return nil
	}
}
