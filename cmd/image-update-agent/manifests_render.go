// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kubic-project/image-update-agent/internal/base/wait"
	"github.com/kubic-project/image-update-agent/internal/face/cli"
	"github.com/kubic-project/image-update-agent/internal/face/filerender"
	"github.com/kubic-project/image-update-agent/internal/face/terminal"
)

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
