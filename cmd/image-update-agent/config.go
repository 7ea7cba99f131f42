// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

func (a *app) configCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Show or check the configuration",
		Args:  noArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.configShowCommand(), a.configCheckCommand())
	return cmd
}

func (a *app) configShowCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Show every setting in force, and where it comes from",
		Example: `  image-update-agent config show
  image-update-agent config show --output json | jq -r '.[] | select(.key == "interval").value'`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			c, err := a.load()
			if err != nil {
				return err
			}
			if a.output == "json" {
				return a.printJSON(c.Entries())
			}
			out, err := c.YAML()
			if err != nil {
				return err
			}
			_, err = a.out.Write(out)
			return err
		},
	}
	a.outputFlag(cmd)
	return cmd
}

func (a *app) configCheckCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "check",
		Short: "Check the configuration; exit 2 and say where, if something is wrong",
		Example: `  image-update-agent config check
  image-update-agent config check --config new.yaml`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			c, err := a.load()
			if err != nil {
				return err
			}
			if len(c.Files) == 0 {
				fmt.Fprintln(a.out, "ok: no file, every setting has its default")
				return nil
			}
			for _, f := range c.Files {
				fmt.Fprintf(a.out, "ok: %s\n", f)
			}
			return nil
		},
	}
}
