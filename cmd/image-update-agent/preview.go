// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/preview"
	"github.com/kubic-project/image-update-agent/agent/source"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
	"github.com/kubic-project/image-update-agent/internal/face/cli"
	"github.com/kubic-project/image-update-agent/internal/face/statuspage"
	"github.com/kubic-project/image-update-agent/internal/face/terminal"
	"github.com/kubic-project/image-update-agent/internal/node/platform"
	"github.com/kubic-project/image-update-agent/internal/registry/hosts"
	"github.com/kubic-project/image-update-agent/manifests"
	"github.com/kubic-project/image-update-agent/tags"
)

// previewed is `preview --output json`.
type previewed struct {
	Images []preview.Image `json:"images"`
	Diffs  []previewDiff   `json:"diffs"` // of the files that an apply would change
}

type previewDiff struct {
	File string `json:"file"`
	Diff string `json:"diff"` // unified
}

func (a *app) previewCommand() *cobra.Command {
	var updates string
	cmd := &cobra.Command{
		Use:   "preview FILE|DIR...",
		Short: "Show the updates that are available for pod manifests, without a node",
		Long: `preview reads pod manifests, asks the registries for newer releases, and shows which of
them the agent would offer, which setting would allow the others, and how an apply would
change each file. It changes nothing. It needs neither containerd nor the daemon, and root
only to read files of root. It uses the configuration, the hosts.toml files and the registry
logins of this machine, if there are any. "-" reads standard input.

Exit status: 0 shown, 1 a file could not be read or a registry did not answer.`,
		Example: `  sudo image-update-agent preview /etc/kubernetes/manifests
  image-update-agent preview --updates minor haproxy.yaml
  image-update-agent preview --output json . | jq '.images[] | select(.offered != "")'`,
		Args: someArgs("a file or directory"),
		RunE: func(cmd *cobra.Command, args []string) error {
			settings, err := a.settings()
			if err != nil {
				return err
			}
			log := slog.New(slog.DiscardHandler)
			p, err := policyOf(cmd.Context(), settings, log)
			if err != nil {
				return err
			}
			if updates != "" {
				change, err := tags.ParseChange(updates)
				if err != nil {
					return cli.Usage(fmt.Errorf("--updates %w", err))
				}
				p = withUpdates(p, change)
			}
			return a.preview(cmd.Context(), settings, p, log, args)
		},
	}
	cmd.Flags().StringVar(&updates, "updates", "", "largest change to offer (default: as configured)")
	cli.Values(cmd, "updates", "none", "rebuild", "revision", "patch", "minor", "major")
	cmd.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveDefault)
	return a.withOutput(cmd)
}

// withUpdates is a policy with another largest change for all repositories.
func withUpdates(p policy.Policy, change tags.Change) policy.Policy {
	of := p.RuleFor
	p.Rule = func(repository string) policy.Rule {
		rule := of(repository)
		rule.Updates = change
		return rule
	}
	return p
}

func (a *app) preview(ctx context.Context, s settings, p policy.Policy, log *slog.Logger, args []string) error {
	if err := quietContainerd(); err != nil {
		return err
	}
	var files []node.PodFile
	errs := []error{a.eachPod(ctx, args, func(path string, data []byte, _ *manifests.File) {
		files = append(files, node.PodFile{Name: path, Data: data})
	})}
	ignored := hostsIgnoredForPreview(s)
	reg := a.registryWith(s, ignored, log)
	defer reg.Close()
	got := preview.Ask(ctx, &source.Asker{Source: reg, Policy: p, Log: log, Now: time.Now}, files,
		platform.OwnerOf)
	if areFollowed(ignored) {
		noteUnparsedHosts(ctx, s.Containerd.CertsD, got.Images)
	}
	outside.Hide(&got.Images)
	out := previewed{Images: got.Images, Diffs: []previewDiff{}}
	for _, file := range files {
		if wanted, is := got.Wanted[file.Name]; is {
			diff := manifests.Diff(file.Name, file.Name+" (applied)", file.Data, wanted)
			out.Diffs = append(out.Diffs, previewDiff{file.Name, diff})
			delete(got.Wanted, file.Name) // it may have been named twice
		}
	}
	err := errors.Join(append(errs, unknownImages(got.Images))...)
	if err == nil && len(out.Images) == 0 && a.output != "json" {
		_, err = fmt.Fprintln(a.out, "There is no image in these files.")
		return err
	}
	return errors.Join(a.printPreview(out), err)
}

// hostsIgnoredForPreview is hostsIgnored without the need for containerd: hosts.toml is followed if it does not answer.
func hostsIgnoredForPreview(s settings) func() (string, error) {
	ask := hostsIgnored(s)
	if ask == nil {
		return nil
	}
	return func() (string, error) {
		why, err := ask()
		if s.certsD.Err("") == nil { // its configuration could be read
			err = nil
		}
		return why, err
	}
}

// areFollowed reports whether containerd reads the hosts.toml files; ignored is hostsIgnoredForPreview.
func areFollowed(ignored func() (string, error)) bool {
	if ignored == nil {
		return true
	}
	why, err := ignored()
	return why == "" && err == nil
}

// unknownImages says once how many images have no answer, and what to do; the page and the JSON say why, for each.
func unknownImages(images []preview.Image) error {
	all, unknown := map[string]bool{}, map[string]bool{}
	for _, i := range images {
		name := cmp.Or(i.Reference, i.Place()) // an error about a whole file has no reference
		if all[name] = true; i.Error != "" {
			unknown[name] = true
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	return fmt.Errorf("no release found for %d of %s: check the image names, the network and the registry logins",
		len(unknown), terminal.Plural(len(all), "image"))
}

func (a *app) printPreview(out previewed) error {
	return a.show(out, func() error {
		if err := statuspage.WritePreview(a.out, out.Images, time.Now().In(a.zone)); err != nil || len(out.Diffs) == 0 {
			return err
		}
		_, err := fmt.Fprintln(a.out, "\nApplying all of them would change:")
		for _, one := range out.Diffs {
			_, failed := fmt.Fprint(a.out, one.Diff)
			err = errors.Join(err, failed)
		}
		return err
	})
}

// noteUnparsedHosts notes of each image that containerd cannot parse the hosts.toml of its registry.
func noteUnparsedHosts(ctx context.Context, certsDirs []string, images []preview.Image) {
	unparsed := map[string]error{} // by directory
	for _, dir := range hosts.Dirs(ctx, certsDirs) {
		unparsed[dir.Path] = dir.Unparsed
	}
	for n := range images {
		registry, _, _ := strings.Cut(images[n].Repository, "/")
		dir, err := hosts.FindDir(certsDirs, registry)
		if why := unparsed[dir]; err == nil && registry != "" && why != nil {
			images[n].Notes = append(images[n].Notes, fmt.Sprintf("%s: %v: containerd ignores the file and asks %s itself",
				filepath.Join(dir, "hosts.toml"), why, registry))
		}
	}
}
