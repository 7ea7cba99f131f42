// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kubic-project/image-update-agent/internal/cli"
	"github.com/kubic-project/image-update-agent/internal/filerender"
	"github.com/kubic-project/image-update-agent/internal/terminal"
)

func (a *app) manifestsRenderCommand() *cobra.Command {
	var o filerender.Options
	cmd := &cobra.Command{
		Use:   "render --set REPOSITORY=TAG... [--diff | --to DIR] FILE|DIR...",
		Short: "Render templates to pod manifests with the tags given",
		Long: `render edits tag and pull policy of pod manifests and keeps every other byte. The
result goes to standard output, several files with a line --- between them, with
--diff as a difference, or with --to into a directory. The input files are never
changed. - is standard input.

A REPOSITORY is as it is written, or as it is after --rewrite, or the end of one
where that fits one repository only: kube-apiserver for
registry.k8s.io/kube-apiserver. A --set or --rewrite that fits nothing in any of
the files is an error, and nothing is rendered then. It is also an error, and the
file is not rendered, where an image cannot have its tag: it names a digest, say,
which kubelet starts whatever the tag is.`,
		Example: `  image-update-agent manifests render --set kube-apiserver=v1.34.2 --diff /etc/kubernetes/manifests
  image-update-agent manifests render --rewrite sles12=registry.suse.com/caasp/v4 \
    --set mariadb=10.2.15-rev1 --set velum=4.0.0-rev1 --pull-policy Always --to out private.yaml`,
		Args: someArgs(1, "a file or directory"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.Diff && o.To != "" {
				return cli.Usage(fmt.Errorf("%s: --diff and --to exclude each other", cmd.CommandPath()))
			}
			return a.render(cmd.Context(), o, args)
		},
	}
	f := cmd.Flags()
	f.StringArrayVar(&o.Set, "set", nil, "the tag of a repository, as REPOSITORY=TAG; can be repeated")
	f.StringArrayVar(&o.Rewrite, "rewrite", nil, "replace a repository or its leading path, as FROM=TO; can be repeated")
	f.StringVar(&o.PullPolicy, "pull-policy", "", "write this pull policy: Always or IfNotPresent; empty leaves it alone")
	f.BoolVar(&o.Diff, "diff", false, "show the difference to the input")
	f.StringVar(&o.To, "to", "", "write the results into this directory, which is made where it is not there")
	cli.Values(cmd, "pull-policy", "Always", "IfNotPresent")
	_ = cmd.MarkFlagDirname("to") // it was just defined
	cmd.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveDefault)
	return a.withOutput(cmd)
}

func (a *app) render(ctx context.Context, o filerender.Options, args []string) error {
	paths, unfound := inputs(args)
	files, err := filerender.Render(o, paths, func(path string) ([]byte, error) {
		return await(ctx, func() ([]byte, error) { return a.readFile(path) })
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
			fmt.Fprintf(a.err, "%s:%d: left alone: %s (%s)\n", f.File, l.Line, terminal.Quoted(l.Reference), l.Reason)
		}
	}
	return a.document(filerender.Text(files))
}
