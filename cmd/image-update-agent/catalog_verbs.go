// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/agent/catalog"
	"github.com/kubic-project/image-update-agent/internal/api"
	"github.com/kubic-project/image-update-agent/internal/cli"
	"github.com/kubic-project/image-update-agent/internal/outside"
	"github.com/kubic-project/image-update-agent/internal/statuspage"
)

func (a *app) catalogCommand() *cobra.Command {
	return group("catalog", "Show the release catalog as this node has verified it, or forget it",
		a.catalogShowCommand(), a.catalogForgetCommand())
}

func (a *app) catalogShowCommand() *cobra.Command {
	return a.withOutput(&cobra.Command{
		Use:   "show",
		Short: "Show what the last verified version lists for the images of this node",
		Long: `show prints the version of the catalog that this node verified last, and the
releases that it lists for the images of this node, the newest first. It reads
the state directory as root; no daemon and no registry are asked.

Exit status: 0 shown, 1 it cannot be read, 2 no catalog is configured, 3 no
version was verified yet.`,
		Example: `  image-update-agent catalog show
  image-update-agent catalog show --output json | jq '.images[].releases[] | select(.withdrawn)'`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := a.settings()
			if err != nil {
				return err
			}
			if s.Catalog.Repository == "" {
				return cli.Usage(fmt.Errorf("catalog.repository: %w", agent.ErrNoCatalog))
			}
			log := slog.New(slog.NewTextHandler(a.err, &slog.HandlerOptions{ReplaceAttr: outside.HideAttr}))
			known, err := catalogOf(s, nil, log)
			if err != nil {
				return err
			}
			if _, err := os.ReadDir(filepath.Join(s.StateDir, catalogDir)); errors.Is(err, fs.ErrPermission) {
				return fmt.Errorf("catalog: %w", err)
			}
			listing := known.Last(cmd.Context())
			view := statuspage.NewCatalogView(listing, catalog.Policy{MachineID: s.machineID()}.RolloutTime)
			if err := a.show(view, func() error { return statuspage.Catalog(a.page(), view) }); err != nil {
				return err
			}
			if listing.Version == 0 {
				return cli.Exit(exitNothing)
			}
			return nil
		},
	})
}

func (a *app) catalogForgetCommand() *cobra.Command {
	return a.withOutput(&cobra.Command{
		Use:   "forget",
		Short: "Forget the verified version, so that any verified one is taken, and poll now",
		Long: `forget has the running daemon forget which version of the catalog it verified last,
and ask for it again. It ends the refusal of a catalog that is older than the
verified one, for example after a publisher with a wrong clock or a restored
registry. Make sure that the registry serves the catalog that you mean: until
then the protection against an old catalog is off.

What runs stays as it is; nothing lower is offered unless catalog.allowLower is set.

Exit status: as for check.`,
		Example: `  image-update-agent catalog show
  image-update-agent catalog forget`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.poll(cmd.Context(), (*api.Client).ForgetCatalog) },
	})
}
