// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kubic-project/image-update-agent/internal/catalog"
	"github.com/kubic-project/image-update-agent/internal/catalog/fleet"
	"github.com/kubic-project/image-update-agent/internal/catalog/publish"
	"github.com/kubic-project/image-update-agent/internal/face/cli"
	"github.com/kubic-project/image-update-agent/internal/face/terminal"
	"github.com/kubic-project/image-update-agent/internal/fleet/prometheus"
)

// prometheusVariable has the URL of the Prometheus, if no flag has.
const prometheusVariable = "IMAGE_CATALOG_PROMETHEUS"

// withPrometheus adds the flags of verbs that ask a Prometheus.
func (a *app) withPrometheus(cmd *cobra.Command) {
	cmd.Flags().StringVar(&a.flags.prometheus, "prometheus", "",
		"URL of the Prometheus with the nodes' metrics (default: the variable "+prometheusVariable+")")
	cmd.Flags().StringVar(&a.flags.tokenFile, "token-file", "", "bearer token for the Prometheus")
	_ = cmd.MarkFlagFilename("token-file") // just defined
}

// asker returns the Prometheus.
func (a *app) asker() (*prometheus.Client, error) {
	server := cmp.Or(a.flags.prometheus, os.Getenv(prometheusVariable))
	if server == "" {
		return nil, cli.Usage(errors.New("--prometheus URL or the variable " + prometheusVariable + " is missing"))
	}
	c, err := prometheus.New(server, a.flags.tokenFile, program+"/"+version)
	if err != nil {
		return nil, cli.Usage(fmt.Errorf("--prometheus: %w", err))
	}
	return c, nil
}

func (a *app) fleetCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "fleet CHANNEL [IMAGE...]",
		Short: "Show how many nodes run the releases of a channel",
		Long: `fleet asks a Prometheus how many nodes of a channel run the newest release of each image, and
which nodes have failed. An IMAGE is REPOSITORY, REPOSITORY:TAG or the end of one.

A node that is lost had begun the release, and has not reported for 15 minutes. Nodes count as
silent for a day after their last report.

Exit status: 0 no node has failed or is lost, 1 one has, or it is not known: Prometheus has no
answer, no node reports an image, or several machines have one label instance.`,
		Example: `  image-catalog fleet prod --prometheus https://prometheus.example.com
  image-catalog fleet prod velum:4.0.0-rev2-build1.5 --output json | jq -r '.[].failedNodes[]'`,
		Args: wantArgs(true, "CHANNEL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			from, err := a.asker()
			if err != nil {
				return err
			}
			p, err := a.publisher(cmd.Context())
			if err != nil {
				return err
			}
			v, err := read(cmd.Context(), p, args[0])
			if err != nil {
				return err
			}
			wanted, err := offeredReleases(cmd.Context(), p, v, args[1:])
			if err != nil {
				return err
			}
			list, err := fleet.Ask(cmd.Context(), from, v.Name+":"+v.Channel, wanted)
			if err != nil {
				return err
			}
			return a.printFleet(list)
		},
	}
	a.withPrometheus(cmd)
	return a.withOutput(cmd)
}

// offeredReleases returns the newest offered release of each image, or those that words name.
func offeredReleases(
	ctx context.Context, p *publish.Publisher, v publish.Version, words []string,
) ([]fleet.Release, error) {
	images, tags, err := namedImages(v, words)
	if err != nil {
		return nil, err
	}
	pages, err := p.Pages(ctx, v, images...)
	if err != nil {
		return nil, err
	}
	var out []fleet.Release
	for _, ref := range v.Pages {
		page, is := pages[ref.Image]
		if !is {
			continue
		}
		named, err := publish.OnlyTags(v, page, tags[ref.Image])
		if err != nil {
			return nil, err
		}
		wanted := named.Releases
		if len(tags[ref.Image]) == 0 {
			wanted = slices.DeleteFunc(slices.Clone(wanted), func(r catalog.Release) bool { return r.Withdrawn != nil })
			wanted = wanted[:min(len(wanted), 1)]
		}
		for _, r := range wanted {
			out = append(out, fleet.Release{Image: ref.Image, Tag: r.Tag, Digest: r.Digest.String()})
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("channel %s offers no release", v.Channel)
	}
	return out, nil
}

func (a *app) printStandings(list []fleet.Standing) error {
	return a.print(list, func(page *terminal.Page) {
		for _, s := range list {
			page.Line(s.Sentence())
		}
	})
}

// printFleet prints what nodes have reported. It fails if that is bad, or is not the whole answer.
func (a *app) printFleet(list []fleet.Standing) error {
	err := a.printStandings(list)
	bad := false
	for _, s := range list {
		err = cmp.Or(err, s.Known())
		bad = bad || s.Bad() > 0
	}
	if err == nil && bad {
		return cli.Exit(exitFailed)
	}
	return err
}

// fleetHint says where to look if no node has reported an image.
func fleetHint(e *fleet.NothingError) string {
	others := slices.DeleteFunc(slices.Clone(e.Catalogs), func(name string) bool {
		return name == "" || name == e.Catalog
	})
	switch {
	case len(e.Catalogs) == 0:
		return "this Prometheus has no metrics of image-update-agent: check --prometheus, and metrics.listen of the nodes"
	case slices.Contains(e.Catalogs, e.Catalog):
		return "nodes report other images: `image-update-agent status` on a node shows the repositories that it follows"
	case len(others) == 0:
		return "the nodes of this Prometheus follow no catalog"
	}
	return "nodes of this Prometheus follow " + strings.Join(others[:min(len(others), maxCatalogs)], ", ")
}

// maxCatalogs bounds the catalogs in a hint.
const maxCatalogs = 5
