// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
	"github.com/kubic-project/image-update-agent/internal/face/cli"
	"github.com/kubic-project/image-update-agent/internal/face/statuspage"
	"github.com/kubic-project/image-update-agent/internal/node/contents"
	"github.com/kubic-project/image-update-agent/internal/node/images"
	"github.com/kubic-project/image-update-agent/internal/node/pods"
)

func (a *app) changesCommand() *cobra.Command {
	return a.withOutput(&cobra.Command{
		Use:   "changes [POD...]",
		Short: "Show which packages an available update changes",
		Long: `changes compares the packages of the running and the offered image of each container: RPM,
dpkg and apk, and the modules of Go programs if an image has no package database. It
shows each package that is added, removed or changed, with its source package, and what
the offered image says of its origin.

It reads the unpacked images that containerd has on this node, as root, and asks no
registry. A separate process without rights parses them.

A POD is a pod manifest, with or without its suffix, or an image, as for apply. Without POD,
it shows all with an update.

Exit status: 0 shown, 1 an image cannot be read, 2 unknown pod, 3 no update is offered.`,
		Example: `  image-update-agent changes velum
  image-update-agent changes velum --output json | jq -r '.[].packages[].name'`,
		ValidArgsFunction: a.completeImages,
		RunE:              func(cmd *cobra.Command, pods []string) error { return a.changes(cmd.Context(), pods) },
	})
}

func (a *app) changes(ctx context.Context, names []string) error {
	s, err := a.currentStatus(ctx)
	if err != nil {
		return err
	}
	all, err := offeredChanges(s, names)
	if err != nil {
		return err
	}
	store, err := a.imagesHere()
	if err != nil {
		return err
	}
	isFailed := false
	for n := range all {
		if err := compare(ctx, store, &all[n]); err != nil {
			all[n].Error, isFailed = outside.Error(err).Error(), true
		}
	}
	err = a.show(all, func() error {
		if len(all) == 0 {
			fmt.Fprintln(a.out, "no update is offered")
		}
		return statuspage.Changes(a.page(), all)
	})
	switch {
	case err != nil:
		return err
	case isFailed:
		return cli.Exit(exitFailed)
	case len(all) == 0:
		return cli.Exit(exitNothing)
	}
	return nil
}

// offeredChanges returns the containers of pod manifests or images that are offered another image, each once.
func offeredChanges(s status.Status, names []string) ([]statuspage.ImageChanges, error) {
	out, unknown := []statuspage.ImageChanges{}, slices.Clone(names)
	for _, i := range s.Images {
		isNamed := func(name string) bool { return isNameOf(i.PodManifest, name) || plan.IsRepository(i.Image, name) }
		unknown = slices.DeleteFunc(unknown, isNamed)
		var running status.Named // zero: it is down, or not known
		if i.Running != nil {
			running = *i.Running
		}
		if len(names) > 0 && !slices.ContainsFunc(names, isNamed) || i.Offered == nil || i.Offered.Digest == running.Digest {
			continue
		}
		out = append(out, statuspage.ImageChanges{
			PodManifest: i.PodManifest, Container: i.Container, Image: i.Image, Change: i.Change,
			From: running, To: *i.Offered, Labels: []statuspage.ImageLabel{},
		})
	}
	if len(unknown) > 0 {
		return nil, fmt.Errorf("%s: %w", unknown[0], plan.ErrUnknownImage)
	}
	return out, nil
}

// imagesHere is containerd's store, to read from.
func (a *app) imagesHere() (*images.Store, error) {
	s, err := a.settings()
	if err != nil {
		return nil, err
	}
	if err := quietContainerd(); err != nil {
		return nil, err
	}
	runtime, err := pods.New(pods.Options{Socket: s.CRI.Socket})
	if err != nil {
		return nil, configError{err}
	}
	return images.New(storageOf(s, runtime, a.registryOf(s, quietLog()), quietLog()))
}

// compare fills in what one image changes.
func compare(ctx context.Context, store *images.Store, i *statuspage.ImageChanges) error {
	if i.From.Digest == "" {
		return errors.New("the container does not run, so there is no image to compare with")
	}
	from, labels, errFrom := packagesOf(ctx, store, i.From)
	to, offered, errTo := packagesOf(ctx, store, i.To)
	i.Labels = statuspage.LabelsOf(labels, offered)
	if err := errors.Join(errFrom, errTo); err != nil {
		return err
	}
	return compareLists(i, from, to)
}

// compareLists compares what is of one kind: a package is not removed because its image no longer has a list.
func compareLists(i *statuspage.ImageChanges, from, to []contents.Package) error {
	if len(from)+len(to) == 0 {
		return nil
	}
	if is, will := listOf(from), listOf(to); is != will {
		return fmt.Errorf("the running image has %s, and the offered one %s: what changes is not known", is, will)
	}
	i.Packages, i.Same = contents.Compare(from, to)
	return nil
}

// listOf says what packages are from.
func listOf(packages []contents.Package) string {
	isOfGo := func(p contents.Package) bool { return p.Format == contents.Go }
	hasGo := slices.ContainsFunc(packages, isOfGo)
	switch {
	case len(packages) == 0:
		return "no list of packages"
	case !slices.ContainsFunc(packages, func(p contents.Package) bool { return !isOfGo(p) }):
		return "only Go programs"
	case hasGo:
		return "a package database and Go programs" // which are not looked for beside a full database
	}
	return "a package database"
}

// packagesOf returns the packages of an image, nil if it has no list of them.
func packagesOf(
	ctx context.Context, store *images.Store, image status.Named,
) (packages []contents.Package, labels map[string]string, err error) {
	err = store.WithUnpacked(ctx, image.Digest, func(ctx context.Context, u images.Unpacked) (err error) {
		labels = u.Labels
		layers, err := contents.OpenLayers(u.Layers)
		if err != nil {
			return err
		}
		files, err := layers.Find()
		defer func() {
			for _, f := range files {
				err = errors.Join(err, f.Close())
			}
			err = errors.Join(err, layers.Close())
		}()
		if err != nil {
			return err
		}
		packages, err = contents.Read(ctx, files, readPackages)
		return err
	})
	if err != nil {
		err = fmt.Errorf("%s: %w", cmp.Or(image.Tag, image.Digest.String()), err)
	}
	return packages, labels, err
}

const readPackages = "read-packages"

// readPackagesCommand is for changes, which starts it without rights: see package contents.
func (a *app) readPackagesCommand() *cobra.Command {
	return &cobra.Command{
		Use:    readPackages,
		Short:  "Parse package databases that another process has opened",
		Hidden: true,
		RunE:   func(_ *cobra.Command, files []string) error { return contents.Serve(files, a.files.out) },
	}
}
