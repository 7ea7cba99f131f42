// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/kubic-project/image-update-agent/internal/face/cli"
	"github.com/kubic-project/image-update-agent/internal/face/terminal"
	"github.com/kubic-project/image-update-agent/tags"
)

func (a *app) tagsExplainCommand(flags *schemeFlags) *cobra.Command {
	return a.withOutput(&cobra.Command{
		Use:   "explain TAG [OTHER...]",
		Short: "Show how the agent reads a tag, and which tags it would offer",
		Long: `explain shows how the agent reads a tag: its name, which stays the same, and its numbers.
For each OTHER tag, it shows the smallest value of updates that offers it, or the reason
why none does and the tags.pattern that would. Without OTHER, it uses made-up examples.

Exit status: 0 the tag can be ordered, 3 it cannot.`,
		Example: `  image-update-agent tags explain 1.27.0-alpine
  image-update-agent tags explain 1.27.0-alpine3.19 1.27.1-alpine3.20
  image-update-agent tags explain --pattern '^(?P<version>.*)-alpine[0-9.]+$' \
    1.27.0-alpine3.19 1.27.1-alpine3.20`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cli.Usage(fmt.Errorf("%s: TAG is required", cmd.CommandPath()))
			}
			s, err := flags.scheme()
			if err != nil {
				return err
			}
			e := s.Explain(args[0], args[1:]...)
			if err := a.show(e, func() error { return printExplanation(a.out, e, s) }); err != nil {
				return err
			}
			if e.Reason != "" {
				return cli.Exit(exitNothing)
			}
			return nil
		},
	})
}

func printExplanation(out io.Writer, e tags.Explanation, s tags.Scheme) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	row := func(name, value string) { fmt.Fprintf(table, "%s:\t%s\n", name, terminal.Quoted(value)) }
	row("Tag", e.Tag)
	row("Form", string(e.Form))
	if e.Reason != "" {
		fmt.Fprintf(table, "Not ordered:\t%s\n", terminal.OneLine(e.Reason))
		row("Follows", followed(e, s))
		switch tag := tagIn(e.Tag); {
		case e.Form == tags.ClassInvalid && tag != "":
			row("Remedy", "give only the tag: "+tag)
		case e.Pattern != "":
			fmt.Fprintf(table, "Remedy:\ttags: {pattern: '%s'}\n", e.Pattern)
		}
		return table.Flush()
	}
	row("Name", e.Name)
	row("Version", e.Version)
	for _, part := range [][2]string{{"Pre-release", e.Pre}, {"Revision", e.Rev}, {"Build", e.Build}} {
		if part[1] != "" {
			row(part[0], part[1])
		}
	}
	row("Follows", followed(e, s))
	fmt.Fprint(table, "\nTAG\tUPDATES\tWHY NOT\n")
	for _, v := range e.Tags {
		why := v.Reason
		if v.Pattern != "" {
			why += fmt.Sprintf("; tags: {pattern: '%s'} orders it", v.Pattern)
		}
		fmt.Fprintf(table, "%s\t%s\t%s\n", terminal.Quoted(v.Tag), cmp.Or(v.Updates, "-"), cmp.Or(why, "-"))
	}
	return table.Flush()
}
