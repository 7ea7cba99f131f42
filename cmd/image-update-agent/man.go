// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kubic-project/image-update-agent/internal/manual"
)

// manCommand is for `make install`, and hidden: it makes the man pages, which say of verbs and settings what --help and
// the shipped configuration say. See docs/dev/decisions/0056-man-pages-by-the-binary.md.
func (a *app) manCommand() *cobra.Command {
	var settings string
	cmd := &cobra.Command{
		Use:     "man FILE.md",
		Short:   "Make a man page from Markdown",
		Example: `  image-update-agent man docs/man/image-update-agent.8.md | man -l -`,
		Hidden:  true,
		Args: cobra.MatchAll(someArgs(1, "the Markdown"), func(cmd *cobra.Command, args []string) error {
			return noArgs(cmd, args[1:])
		}),
		RunE: func(cmd *cobra.Command, args []string) error {
			text, err := await(cmd.Context(), func() ([]byte, error) { return os.ReadFile(args[0]) })
			if err != nil {
				return err
			}
			inserts := map[string]func(*manual.Page) error{"verbs": func(p *manual.Page) error {
				describeVerbs(p, cmd.Root())
				return nil
			}}
			if settings != "" {
				inserts = map[string]func(*manual.Page) error{"settings": func(p *manual.Page) error {
					config, err := os.ReadFile(settings)
					if err != nil {
						return err
					}
					return p.Settings(string(config))
				}}
			}
			var page manual.Page
			if err := page.Markdown(string(text), version, inserts); err != nil {
				return fmt.Errorf("%s: %w", args[0], err)
			}
			_, err = a.out.Write(page.Bytes())
			return err
		},
	}
	cmd.Flags().StringVar(&settings, "settings", "", "the commented configuration, for <!-- settings -->")
	return cmd
}

// describeVerbs writes a subsection for each verb below cmd: usage, text, flags, examples.
func describeVerbs(p *manual.Page, cmd *cobra.Command) {
	for _, verb := range cmd.Commands() {
		if !verb.IsAvailableCommand() || verb.Name() == "help" {
			continue
		}
		usage := strings.TrimPrefix(verb.UseLine(), cmd.Root().Name()+" ")
		p.Subsection(strings.TrimSuffix(usage, " [flags]"))
		text := verb.Long
		if text == "" {
			text = verb.Short + "."
		}
		p.Text(text)
		// As --help shows them; a flag as a value is pflag's, which would be one more module to name.
		if flags := verb.LocalFlags(); flags.HasAvailableFlags() {
			p.Example(flags.FlagUsagesWrapped(72))
		}
		if verb.Example != "" {
			p.Text("Examples:")
			p.Example(verb.Example)
		}
		// What cobra has to say of each shell is for who installs no package.
		if verb.Name() != "completion" {
			describeVerbs(p, verb)
		}
	}
}
