// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/kubic-project/image-update-agent/internal/atomicfile"
	"github.com/kubic-project/image-update-agent/manifests"
)

// maxPodManifest bounds a file, in bytes: the limit of the agent itself.
const maxPodManifest = 1 << 20

func (a *app) manifestsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "manifests",
		Short: "Look at pod manifests, and render them, by hand",
		Args:  noArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.manifestsImagesCommand(), a.manifestsRenderCommand())
	return cmd
}

// imageLine is one line of `manifests images --output json`.
type imageLine struct {
	File       string `json:"file"`
	Line       int    `json:"line"`
	Column     int    `json:"column"`
	Container  string `json:"container"`
	Kind       string `json:"kind"`
	Reference  string `json:"reference"`
	PullPolicy string `json:"pullPolicy"`
	Editable   bool   `json:"editable"`
	Reason     string `json:"reason"`
}

func (a *app) manifestsImagesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "images FILE|DIR...",
		Short: "List every image reference: where it is, what it is, and whether it can be edited",
		Example: `  image-update-agent manifests images /etc/kubernetes/manifests
  image-update-agent manifests images --output json velum.yaml | jq 'select(.editable | not)'`,
		Args: someArgs(1, "a file or directory"),
		RunE: func(_ *cobra.Command, args []string) error {
			var lines []imageLine
			err := eachFile(args, func(path string, data []byte) error {
				pod, err := manifests.Parse(data)
				for _, i := range pod.Images {
					lines = append(lines, imageLine{
						File: path, Line: i.Line, Column: i.Column, Container: i.Container, Kind: string(i.Kind),
						Reference: i.Reference, PullPolicy: i.PullPolicy, Editable: i.Editable, Reason: i.Reason,
					})
				}
				return err
			})
			return errors.Join(a.printImages(lines), err)
		},
	}
	a.outputFlag(cmd)
	cmd.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveDefault)
	return cmd
}

func (a *app) printImages(lines []imageLine) error {
	if a.output == "json" {
		enc := json.NewEncoder(a.out)
		for _, l := range lines {
			if err := enc.Encode(l); err != nil {
				return err
			}
		}
		return nil
	}
	table := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "PLACE\tCONTAINER\tKIND\tREFERENCE\tPULL POLICY\tEDITABLE")
	for _, l := range lines {
		editable := "yes"
		if !l.Editable {
			editable = "no: " + l.Reason
		}
		fmt.Fprintf(table, "%s:%d:%d\t%s\t%s\t%s\t%s\t%s\n", l.File, l.Line, l.Column,
			dash(l.Container), l.Kind, dash(printable(l.Reference)), dash(l.PullPolicy), editable)
	}
	return table.Flush()
}

// renderOptions are the flags of `manifests render`.
type renderOptions struct {
	set, rewrite []string
	policy, to   string
	diff         bool
}

func (a *app) manifestsRenderCommand() *cobra.Command {
	var o renderOptions
	cmd := &cobra.Command{
		Use:   "render --set REPOSITORY=TAG... [--diff | --to DIR] FILE|DIR...",
		Short: "Render templates to pod manifests with the tags given",
		Long: `render edits tag and pull policy of pod manifests and keeps every other byte. The
result goes to standard output, with --diff as a difference, or with --to into a
directory. The input files are never changed.`,
		Example: `  image-update-agent manifests render --set sles12/velum=4.0.0-rev1 --diff public.yaml
  image-update-agent manifests render --rewrite sles12=registry.suse.com/caasp/v4 \
    --set registry.suse.com/caasp/v4/velum=4.0.0-rev1 --pull-policy Always --to out templates/`,
		Args: someArgs(1, "a file or directory"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.diff && o.to != "" {
				return usageError{fmt.Errorf("%s: --diff and --to exclude each other", cmd.CommandPath())}
			}
			return a.render(o, args)
		},
	}
	f := cmd.Flags()
	f.StringArrayVar(&o.set, "set", nil, "the tag of a repository, as REPOSITORY=TAG; can be repeated")
	f.StringArrayVar(&o.rewrite, "rewrite", nil, "replace a repository or its leading path, as FROM=TO; can be repeated")
	f.StringVar(&o.policy, "pull-policy", "", "write this pull policy: Always or IfNotPresent; empty leaves it alone")
	f.BoolVar(&o.diff, "diff", false, "show the difference to the input")
	f.StringVar(&o.to, "to", "", "write the results into this directory")
	values(cmd, "pull-policy", "Always", "IfNotPresent")
	_ = cmd.MarkFlagDirname("to") // it was just defined
	cmd.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveDefault)
	return cmd
}

func (a *app) render(o renderOptions, args []string) error {
	overrides, err := o.overrides()
	if err != nil {
		return usageError{err}
	}
	return eachFile(args, func(path string, data []byte) error {
		out, err := manifests.Render(data, overrides)
		if err != nil {
			return err
		}
		for _, l := range out.Left {
			fmt.Fprintf(a.err, "%s:%d: left alone: %s (%s)\n", path, l.Line, printable(l.Reference), l.Reason)
		}
		switch {
		case o.diff:
			_, err = io.WriteString(a.out, manifests.Diff(path, path+" (rendered)", data, out.Data))
		case o.to != "":
			err = writeTo(o.to, filepath.Base(path), out.Data)
		default:
			_, err = a.out.Write(out.Data)
		}
		return err
	})
}

func (o renderOptions) overrides() (manifests.Overrides, error) {
	if o.policy != "" && o.policy != "Always" && o.policy != "IfNotPresent" {
		return manifests.Overrides{}, fmt.Errorf("--pull-policy %q: Always or IfNotPresent", o.policy)
	}
	tag := map[string]string{}
	for _, s := range o.set {
		repository, t, ok := strings.Cut(s, "=")
		if !ok || repository == "" || t == "" {
			return manifests.Overrides{}, fmt.Errorf("--set %q: want REPOSITORY=TAG", s)
		}
		tag[repository] = t
	}
	out := manifests.Overrides{PullPolicy: o.policy}
	for _, s := range o.rewrite {
		from, to, ok := strings.Cut(s, "=")
		if !ok || from == "" || to == "" {
			return manifests.Overrides{}, fmt.Errorf("--rewrite %q: want FROM=TO", s)
		}
		out.Rewrites = append(out.Rewrites, manifests.Rewrite{From: from, To: to})
	}
	out.Tag = func(repository string, img manifests.Image) (string, bool) {
		if t, ok := tag[repository]; ok {
			return t, true
		}
		t, ok := tag[manifests.SplitReference(img.Reference).Name]
		return t, ok
	}
	return out, nil
}

// eachFile calls f for each file, and for the visible files of each directory.
// One bad file does not hide the others.
func eachFile(args []string, f func(path string, data []byte) error) error {
	var errs []error
	for _, arg := range args {
		paths, err := expand(arg)
		if err != nil {
			errs = append(errs, err)
		}
		for _, path := range paths {
			data, err := readBounded(path)
			if err == nil {
				err = f(path, data)
			}
			if err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", path, err))
			}
		}
	}
	return errors.Join(errs...)
}

func expand(arg string) ([]string, error) {
	if info, err := os.Stat(arg); err != nil || !info.IsDir() {
		return []string{arg}, nil //nolint:nilerr // a missing file is reported when it is read
	}
	entries, err := os.ReadDir(arg)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") && e.Type().IsRegular() {
			out = append(out, filepath.Join(arg, e.Name()))
		}
	}
	slices.Sort(out)
	return out, nil
}

func readBounded(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, unpath(err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxPodManifest+1))
	if err != nil {
		return nil, unpath(err)
	}
	if len(data) > maxPodManifest {
		return nil, fmt.Errorf("larger than %d bytes", maxPodManifest)
	}
	return data, nil
}

// unpath takes the path out of an error that will be given it anyway.
func unpath(err error) error {
	if e, ok := errors.AsType[*os.PathError](err); ok {
		return e.Err
	}
	return err
}

func writeTo(dir, name string, data []byte) error {
	d, err := atomicfile.OpenDir(dir)
	if err != nil {
		return err
	}
	_, err = d.Write(name, data, atomicfile.Options{Mode: 0o644})
	return errors.Join(err, d.Close())
}
