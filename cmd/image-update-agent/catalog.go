// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/agent/catalog"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
	"github.com/kubic-project/image-update-agent/internal/face/api"
	"github.com/kubic-project/image-update-agent/internal/face/cli"
	"github.com/kubic-project/image-update-agent/internal/face/statuspage"
)

func (a *app) catalogCommand() *cobra.Command {
	return group("catalog", "Show the verified release catalog, or forget it",
		a.catalogShowCommand(), a.catalogForgetCommand())
}

func (a *app) catalogShowCommand() *cobra.Command {
	return a.withOutput(&cobra.Command{
		Use:   "show",
		Short: "Show the releases that the catalog lists for the images of this node",
		Long: `show prints the last version of the catalog that this node verified, and the releases that
it lists for the images of this node, the newest first. It reads the state directory, so
it needs root, but neither the daemon nor the registry.

Exit status: 0 shown, 1 the catalog cannot be read, 2 no catalog is configured, 3 no
version was verified yet.`,
		Example: `  image-update-agent catalog show
  image-update-agent catalog show --output json | jq '.images[].releases[] | select(.withdrawn)'`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := a.needsCatalog()
			if err != nil {
				return err
			}
			log := slog.New(slog.NewTextHandler(a.err, &slog.HandlerOptions{ReplaceAttr: outside.HideAttr}))
			known, err := channelOf(s, nil, log)
			if err != nil {
				return err
			}
			listing, err := known.Stored()
			if err != nil {
				return err
			}
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
		Short: "Forget the verified version of the catalog, and check now",
		Long: `forget makes the daemon forget the last verified version of the catalog and ask for the
catalog again. Use it when the daemon refuses a catalog because it is older than the
verified one, for example after the publisher restored the registry or corrected its
clock. First make sure that the registry serves the right catalog: until the next
verified version the node is not protected against an old catalog.

Running containers do not change; a lower release is offered only with
catalog.allowLower.

Exit status: as for check, 2 no catalog is configured.`,
		Example: `  image-update-agent catalog show
  image-update-agent catalog forget`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if _, err := a.needsCatalog(); err != nil && !isConfig(err) { // else the daemon knows
				return err
			}
			return a.poll(cmd.Context(), (*api.Client).ForgetCatalog)
		},
	})
}

// needsCatalog returns the settings, or an error unless they have a catalog.
func (a *app) needsCatalog() (settings, error) {
	s, err := a.settings()
	if err == nil && s.Catalog.Repository == "" {
		err = cli.Usage(fmt.Errorf("catalog.repository: %w", agent.ErrNoCatalog))
	}
	return s, err
}
