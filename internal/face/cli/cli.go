// SPDX-License-Identifier: Apache-2.0

// Package cli is what the verbs of both programs have in common: errors with an exit code of their own, --output, no
// argument that nothing looks at.
//
// Signals end every command: reading a terminal or a FIFO ignores contexts, so the read of a caller's input is
// abandoned, and everything else has a second. Commands that act on the node end between two steps.
package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kubic-project/image-update-agent/internal/base/outside"
)

// usageError is a mistake in the arguments.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// Usage marks an error as a mistake in the arguments.
func Usage(err error) error { return usageError{err} }

// IsUsage reports whether an error is a mistake in the arguments.
func IsUsage(err error) bool {
	_, is := errors.AsType[usageError](err)
	return is
}

// ExitError is an end whose reason was printed already.
type ExitError struct{ Code int }

func (e ExitError) Error() string { return fmt.Sprintf("exit %d", e.Code) }

// Exit ends a verb with a code, and prints nothing.
func Exit(code int) error { return ExitError{code} }

// WithOutput adds --output, whose value is text or json, to a verb.
func WithOutput(cmd *cobra.Command, output *string) *cobra.Command {
	cmd.Flags().StringVarP(output, "output", "o", "text", "text for people, json for programs")
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if *output != "text" && *output != "json" {
			return Usage(fmt.Errorf("--output %q: want text or json", *output))
		}
		return nil
	}
	Values(cmd, "output", "text", "json")
	return cmd
}

// PrintJSON writes one indented JSON value.
func PrintJSON(out io.Writer, v any) error {
	enc := json.NewEncoder(outside.JSON(out))
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// Values completes the values of a flag that was just defined.
func Values(cmd *cobra.Command, flag string, all ...string) {
	// Only a flag that is not there makes this fail.
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(all, cobra.ShellCompDirectiveNoFileComp))
}

// Strict makes cobra's own verbs refuse unknown arguments: help and completion would print something else and exit
// with 0.
func Strict(cmd *cobra.Command) {
	cmd.InitDefaultHelpCmd()
	cmd.InitDefaultCompletionCmd()
	for _, verb := range cmd.Commands() {
		switch verb.Name() {
		case "help":
			verb.Args = func(_ *cobra.Command, args []string) error {
				found, rest, err := cmd.Find(args)
				if err != nil {
					return Usage(err)
				}
				return NoArgs(found, rest)
			}
		case "completion":
			verb.Args = NoArgs
			verb.RunE = func(verb *cobra.Command, _ []string) error { return verb.Help() }
			for _, shell := range verb.Commands() {
				shell.Args = NoArgs
			}
		}
	}
}

// NoArgs refuses arguments as a usage error, and names the nearest verb.
func NoArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	err := fmt.Errorf("%s takes no argument %q", cmd.CommandPath(), args[0])
	if near := nearest(cmd, args[0]); cmd.HasSubCommands() && near != "" {
		err = fmt.Errorf("unknown command %q, did you mean %q?", args[0], near)
	} else if cmd.HasSubCommands() {
		err = fmt.Errorf("unknown command %q", args[0])
	}
	return Usage(err)
}

// FlagError makes an error about a flag a usage error, and names the command that has the flag.
func FlagError(cmd *cobra.Command, err error) error {
	missing, is := errors.AsType[*pflag.NotExistError](err)
	if root := cmd.Root(); is && cmd != root && root.Flags().Lookup(missing.GetSpecifiedName()) != nil {
		err = fmt.Errorf("%s has no flag --%s, only %s has it", cmd.CommandPath(), missing.GetSpecifiedName(), root.Name())
	}
	return Usage(err)
}

// SetArgs sets the arguments of a program. An unknown verb is named before its flags, which are unknown, too.
func SetArgs(root *cobra.Command, args []string) {
	root.SetArgs(args)
	ofFlag := root.FlagErrorFunc()
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		_, rest, _ := root.Find(args) // the verb is not there: that is the question
		if words := wordsOf(cmd, rest); cmd.HasSubCommands() && len(words) > 0 {
			return NoArgs(cmd, words)
		}
		return ofFlag(cmd, err)
	})
}

// wordsOf returns the arguments that are neither flags nor their values. As for cobra, a flag that is not known has a
// value.
func wordsOf(cmd *cobra.Command, args []string) []string {
	var words []string
	for n := 0; n < len(args); n++ {
		switch arg := args[n]; {
		case arg == "--":
			return append(words, args[n+1:]...)
		case !strings.HasPrefix(arg, "-") || arg == "-":
			words = append(words, arg)
		case hasValueBehind(cmd, arg):
			n++
		}
	}
	return words
}

// hasValueBehind reports whether the next argument is the value of a flag.
func hasValueBehind(cmd *cobra.Command, arg string) bool {
	name, isLong := strings.CutPrefix(arg, "--")
	if strings.Contains(arg, "=") || !isLong && len(arg) > 2 {
		return false
	}
	f := cmd.Flags().Lookup(name)
	if !isLong {
		f = cmd.Flags().ShorthandLookup(arg[1:])
	}
	return f == nil || f.NoOptDefVal == ""
}

// nearest returns the verb that a person most likely means: one that names the word in SuggestFor, else one that is
// spelled alike; "" if there is none.
func nearest(cmd *cobra.Command, word string) string {
	for _, verb := range cmd.Commands() {
		if slices.Contains(verb.SuggestFor, word) {
			return verb.Name()
		}
	}
	if near := cmd.SuggestionsFor(word); len(near) > 0 {
		return near[0]
	}
	return ""
}

// Version is a build of a program.
type Version struct {
	Version  string `json:"version"`
	Revision string `json:"revision"`
	Go       string `json:"go"`
	OS       string `json:"os"`
	Arch     string `json:"arch"`
}

// PrintVersion writes the version of a program as text.
func PrintVersion(out io.Writer, program, version string) error {
	v := versionOf(version)
	_, err := fmt.Fprintf(out, "%s %s (%s, %s/%s)\n", program, v.Version, v.Go, v.OS, v.Arch)
	return err
}

// VersionCommand is the verb version; json writes its value.
func VersionCommand(out io.Writer, program, version string, json func(v any) error) *cobra.Command {
	output := ""
	return WithOutput(&cobra.Command{
		Use:     "version",
		Short:   "Show the version",
		Example: "  " + program + " version --output json",
		Args:    NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if output == "json" {
				return json(versionOf(version))
			}
			return PrintVersion(out, program, version)
		},
	}, &output)
}

func versionOf(version string) Version {
	v := Version{Version: version, Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				v.Revision = s.Value
			}
		}
	}
	return v
}
