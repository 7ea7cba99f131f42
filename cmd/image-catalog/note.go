// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kubic-project/image-update-agent/internal/catalog"
	"github.com/kubic-project/image-update-agent/internal/catalog/publish"
	"github.com/kubic-project/image-update-agent/internal/face/cli"
)

func (a *app) noteCommand() *cobra.Command {
	var said advisoryFlags
	cmd := &cobra.Command{
		Use:   "note CHANNEL IMAGE:TAG...",
		Short: "Say what releases are good for: severity, fixes, a note",
		Long: `note says what listed releases are good for, or changes it: the severity, which problems they
fix, and a note in one line. A flag that is not given stays as it is, and an empty one is
removed. Nodes and people read it; it never offers a release.

Each channel has its own: promote takes what FROM says where TO says nothing yet.

Exit status: 0 published, 3 the channel says so already.`,
		Example: `  image-catalog note prod velum:4.0.0-rev2-build1.6 --severity important \
    --fixes CVE-2026-1234,bsc#1234567 --key prod.key
  image-catalog note prod velum:4.0.0-rev2-build1.6 --note "" --key prod.key`,
		Args: wantArgs(true, "CHANNEL", "IMAGE:TAG"),
		RunE: func(cmd *cobra.Command, args []string) error {
			what, err := said.read(cmd)
			if err != nil {
				return err
			}
			if what == (publish.Noted{}) {
				return cli.Usage(errors.New("want --severity, --fixes or --note"))
			}
			p, err := a.publisher(cmd.Context())
			if err != nil {
				return err
			}
			return a.change(cmd.Context(), p, args[0], publish.Note(args[1:], what), publish.How{})
		},
	}
	said.define(cmd)
	return a.withOut(cmd)
}

// advisoryFlags are the flags that say what releases are good for.
type advisoryFlags struct {
	severity, note string
	fixes          []string
}

func (f *advisoryFlags) define(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.severity, "severity", "", "low, moderate, important or critical")
	cmd.Flags().StringArrayVar(&f.fixes, "fixes", nil,
		"what the releases fix, as CVE-2026-1234,bsc#1234567 (repeatable)")
	cmd.Flags().StringVar(&f.note, "note", "", "what else their admins should know; one line of at most 512 bytes")
}

// read returns what the flags that were given say.
func (f *advisoryFlags) read(cmd *cobra.Command) (n publish.Noted, err error) {
	if cmd.Flags().Changed("severity") {
		var severity catalog.Severity
		if f.severity != "" {
			if severity, err = catalog.ParseSeverity(f.severity); err != nil {
				return n, cli.Usage(fmt.Errorf("--severity: %w", err))
			}
		}
		n.Severity = &severity
	}
	if cmd.Flags().Changed("fixes") {
		var fixes []string
		if len(f.fixes) != 1 || f.fixes[0] != "" {
			if fixes, err = catalog.ParseFixes(f.fixes...); err != nil {
				return n, cli.Usage(fmt.Errorf("--fixes: %w", err))
			}
		}
		n.Fixes = &fixes
	}
	if cmd.Flags().Changed("note") {
		if err := catalog.CheckReason(f.note); err != nil {
			return n, cli.Usage(fmt.Errorf("--note: %w", err))
		}
		n.Note = &f.note
	}
	return n, nil
}
