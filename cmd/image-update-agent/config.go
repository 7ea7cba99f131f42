// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kubic-project/image-update-agent/internal/face/cli"
	"github.com/kubic-project/image-update-agent/internal/node/config"
)

func (a *app) configCommand() *cobra.Command {
	return group("config", "Show or check the configuration", a.configShowCommand(), a.configCheckCommand())
}

func (a *app) configShowCommand() *cobra.Command {
	return a.withOutput(&cobra.Command{
		Use:   "show",
		Short: "Show the effective settings and their sources",
		Long: `config show prints every effective setting, and the file or default that it comes from.
Comments above them name the platform (the Kubernetes distribution of the node), and
those of its paths that no setting changes.`,
		Example: `  image-update-agent config show
  image-update-agent config show --output json | jq -r '.[] | select(.key == "interval").value'`,
		Args: cli.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			c, err := a.load()
			if err != nil {
				return err
			}
			if err := c.Unread(); err != nil {
				fmt.Fprintf(a.err, "image-update-agent: warning: %v\n", err)
			}
			return a.show(c.Entries(), func() error {
				out, err := c.YAML()
				if err != nil {
					return err
				}
				fmt.Fprintf(a.out, "# platform: %s\n", c.Platform.Name)
				for _, path := range c.Platform.Paths() { // they have no setting
					fmt.Fprintf(a.out, "# platform.%s: %s\n", path.Name, path.Value)
				}
				_, err = a.out.Write(out)
				return err
			})
		},
	})
}

// checkedConfig is `config check --output json`.
type checkedConfig struct {
	Files    []string         `json:"files"` // that are in force
	Problems []config.Problem `json:"problems"`
}

func (a *app) configCheckCommand() *cobra.Command {
	return a.withOutput(&cobra.Command{
		Use:   "check",
		Short: "Check the configuration and print its mistakes with file and line",
		Long: `config check reads the configuration, or the file that --config names, and prints each
mistake with its file and line. The daemon refuses to start or reload with a mistake.

Exit status: 0 valid, 2 not valid.`,
		Example: `  image-update-agent config check
  image-update-agent config check --config new.yaml
  image-update-agent config check --output json | jq '.problems[]'`,
		Args: cli.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			c, wrong := a.load()
			if a.output == "json" {
				checked := checkedConfig{Files: []string{}, Problems: append([]config.Problem{}, config.ProblemsOf(wrong)...)}
				if wrong == nil {
					checked.Files = append(checked.Files, c.Files...)
				}
				return errors.Join(wrong, cli.PrintJSON(a.out, checked))
			}
			if wrong != nil {
				return wrong
			}
			if len(c.Files) == 0 {
				fmt.Fprintln(a.out, "ok: no configuration file; every setting has its default")
			}
			for _, f := range c.Files {
				fmt.Fprintf(a.out, "ok: %s\n", f)
			}
			return nil
		},
	})
}
