// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/kubic-project/image-update-agent/internal/base/nodefile"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
	"github.com/kubic-project/image-update-agent/internal/base/wait"
	"github.com/kubic-project/image-update-agent/internal/face/cli"
	"github.com/kubic-project/image-update-agent/internal/face/filerender"
	"github.com/kubic-project/image-update-agent/internal/face/terminal"
	"github.com/kubic-project/image-update-agent/manifests"
)

// maxPodManifest bounds a file, in bytes: the limit of the agent itself.
const maxPodManifest = 1 << 20

func (a *app) manifestsCommand() *cobra.Command {
	return group("manifests", "List images of pod manifests, and render pod manifests",
		a.manifestsImagesCommand(), a.manifestsRenderCommand())
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
		Short: "List the image references of pod manifests",
		Long: `images lists every image reference of pod manifests with its line, its kind, its pull policy,
and whether the agent can edit it. "-" reads standard input.`,
		Example: `  image-update-agent manifests images /etc/kubernetes/manifests
  image-update-agent manifests images --output json velum.yaml | jq 'select(.editable | not)'`,
		Args: someArgs("a file or directory"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var lines []imageLine
			unread := a.eachPod(cmd.Context(), args, func(path string, _ []byte, pod *manifests.File) {
				for _, i := range pod.Images {
					lines = append(lines, imageLine{
						File: path, Line: i.Line, Column: i.Column, Container: i.Container, Kind: string(i.Kind),
						Reference: i.Reference, PullPolicy: i.PullPolicy, Editable: i.Editable, Reason: i.Reason,
					})
				}
			})
			return errors.Join(a.printImages(lines), unread)
		},
	}
	cmd.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveDefault)
	return a.withOutput(cmd)
}

func (a *app) printImages(lines []imageLine) error {
	if a.output == "json" {
		return printLines(a.encoder(), lines)
	}
	table := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	if len(lines) > 0 {
		fmt.Fprintln(table, "PLACE\tCONTAINER\tKIND\tREFERENCE\tPULL POLICY\tEDITABLE")
	}
	for _, l := range lines {
		editable := "yes"
		if !l.Editable {
			editable = "no: " + l.Reason
		}
		fmt.Fprintf(table, "%s:%d:%d\t%s\t%s\t%s\t%s\t%s\n", l.File, l.Line, l.Column,
			cmp.Or(l.Container, "-"), l.Kind, cmp.Or(terminal.Quoted(l.Reference), "-"), cmp.Or(l.PullPolicy, "-"), editable)
	}
	return table.Flush()
}

// eachPod visits the pod manifests of files and directories. One bad file does not hide the others: its error comes
// with theirs at the end.
func (a *app) eachPod(
	ctx context.Context, args []string, visit func(path string, data []byte, pod *manifests.File),
) error {
	paths, unfound := inputs(args)
	errs := []error{unfound}
	for _, path := range paths {
		var pod *manifests.File
		data, err := wait.Result(ctx, func() ([]byte, error) { return a.readFile(path) })
		if err == nil {
			pod, err = manifests.Parse(data)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", path, err))
			continue
		}
		visit(path, data, pod)
	}
	return errors.Join(errs...)
}

// inputs are the files, the visible files of each directory, and standard input.
// Those that are found are returned with the error about others.
func inputs(args []string) (paths []string, unread error) {
	for _, arg := range args {
		if info, err := os.Stat(arg); arg == filerender.StandardInput || err != nil || !info.IsDir() {
			paths = append(paths, arg) // a missing file is reported when it is read
			continue
		}
		entries, err := os.ReadDir(arg)
		unread = errors.Join(unread, err)
		for _, e := range entries {
			if path := filepath.Join(arg, e.Name()); !strings.HasPrefix(e.Name(), ".") && isFile(path, e) {
				paths = append(paths, path)
			}
		}
	}
	return paths, unread
}

// isFile reports whether kubelet reads an entry of its directory, as it does behind a symlink. One that leads nowhere
// is reported when it is read.
func isFile(path string, e fs.DirEntry) bool {
	if e.Type()&fs.ModeSymlink == 0 {
		return e.Type().IsRegular()
	}
	info, err := os.Stat(path)
	return err != nil || info.Mode().IsRegular()
}

// readFile reads a file, or standard input. Its errors do not name the path.
func (a *app) readFile(path string) ([]byte, error) {
	in := a.in
	if path != filerender.StandardInput {
		f, err := os.Open(path)
		if err != nil {
			return nil, nodefile.Plain(err)
		}
		defer f.Close()
		in = f
	}
	data, err := outside.ReadAll(in, maxPodManifest)
	return data, nodefile.Plain(err)
}

func (a *app) manifestsRenderCommand() *cobra.Command {
	var o filerender.Options
	cmd := &cobra.Command{
		Use:   "render --set REPOSITORY=TAG... [--diff | --to DIR] FILE|DIR...",
		Short: "Render pod manifests from templates and tags",
		Long: `render changes the tag and the pull policy of pod manifests, and keeps every other byte.
It prints the result to standard output, several files separated by a line "---", or with
--diff the difference, or writes files to the directory that --to names, with mode and
owner of the input files. It never changes these. "-" reads standard input.

A REPOSITORY is the repository in the file, or after --rewrite, or its last part if that
is unambiguous: kube-apiserver for registry.k8s.io/kube-apiserver. If a --set or --rewrite
matches nothing in any file, render fails and renders nothing. It also fails for a file
with an image that cannot get its tag, for example one that names a digest: kubelet
starts that digest, whatever the tag is.`,
		Example: `  image-update-agent manifests render --set kube-apiserver=v1.34.2 --diff /etc/kubernetes/manifests
  image-update-agent manifests render --rewrite sles12=registry.suse.com/caasp/v4 \
    --set mariadb=10.2.15-rev1 --set velum=4.0.0-rev1 --pull-policy Always --to out private.yaml`,
		Args: someArgs("a file or directory"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.Diff && o.To != "" {
				return cli.Usage(fmt.Errorf("%s: give --diff or --to, not both", cmd.CommandPath()))
			}
			return a.render(cmd.Context(), o, args)
		},
	}
	f := cmd.Flags()
	f.StringArrayVar(&o.Set, "set", nil, "tag of a repository, as REPOSITORY=TAG; can be repeated")
	f.StringArrayVar(&o.Rewrite, "rewrite", nil, "replace a repository or its leading path, as FROM=TO; can be repeated")
	f.StringVar(&o.PullPolicy, "pull-policy", "",
		"pull policy to write: Always or IfNotPresent (default: keep the current one)")
	f.BoolVar(&o.Diff, "diff", false, "print the difference from the input")
	f.StringVar(&o.To, "to", "", "write the results to this directory, and create it if necessary")
	cli.Values(cmd, "pull-policy", "Always", "IfNotPresent")
	_ = cmd.MarkFlagDirname("to") // it was just defined
	cmd.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveDefault)
	return a.withOutput(cmd)
}

func (a *app) render(ctx context.Context, o filerender.Options, args []string) error {
	paths, unfound := inputs(args)
	files, err := filerender.Render(o, paths, func(path string) ([]byte, error) {
		return wait.Result(ctx, func() ([]byte, error) { return a.readFile(path) })
	}, unfound)
	if usage, is := errors.AsType[filerender.UsageError](err); is {
		return cli.Usage(usage)
	}
	return errors.Join(err, a.printRendered(files))
}

func (a *app) printRendered(files []filerender.File) error {
	if a.output == "json" {
		return printLines(a.encoder(), files)
	}
	for _, f := range files {
		for _, l := range f.Untouched {
			fmt.Fprintf(a.err, "%s:%d: %s: %s\n", f.File, l.Line, terminal.Quoted(l.Name()), l.Text)
		}
	}
	return a.document(filerender.Text(files))
}
