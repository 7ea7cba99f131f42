// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/internal/atomicfile"
	"github.com/kubic-project/image-update-agent/internal/terminal"
	"github.com/kubic-project/image-update-agent/manifests"
)

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
result goes to standard output, several files with a line --- between them, with
--diff as a difference, or with --to into a directory. The input files are never
changed. - is standard input.

A REPOSITORY is as it is written, or as it is after --rewrite, or the end of one
where that fits one repository only: kube-apiserver for
registry.k8s.io/kube-apiserver. A --set or --rewrite that fits nothing in any of
the files is an error, and nothing is rendered then.`,
		Example: `  image-update-agent manifests render --set kube-apiserver=v1.34.2 --diff /etc/kubernetes/manifests
  image-update-agent manifests render --rewrite sles12=registry.suse.com/caasp/v4 \
    --set mariadb=10.2.15-rev1 --set velum=4.0.0-rev1 --pull-policy Always --to out private.yaml`,
		Args: someArgs(1, "a file or directory"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.diff && o.to != "" {
				return usageError{fmt.Errorf("%s: --diff and --to exclude each other", cmd.CommandPath())}
			}
			return a.render(cmd.Context(), o, args)
		},
	}
	f := cmd.Flags()
	f.StringArrayVar(&o.set, "set", nil, "the tag of a repository, as REPOSITORY=TAG; can be repeated")
	f.StringArrayVar(&o.rewrite, "rewrite", nil, "replace a repository or its leading path, as FROM=TO; can be repeated")
	f.StringVar(&o.policy, "pull-policy", "", "write this pull policy: Always or IfNotPresent; empty leaves it alone")
	f.BoolVar(&o.diff, "diff", false, "show the difference to the input")
	f.StringVar(&o.to, "to", "", "write the results into this directory, which is made where it is not there")
	values(cmd, "pull-policy", "Always", "IfNotPresent")
	_ = cmd.MarkFlagDirname("to") // it was just defined
	cmd.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveDefault)
	return a.withOutput(cmd)
}

// renderedFile is one line of `manifests render --output json`.
type renderedFile struct {
	File     string           `json:"file"`
	Changes  []renderedChange `json:"changes"`
	Left     []agent.Left     `json:"left"`
	To       string           `json:"to"`       // with --to: the file that was written
	Diff     string           `json:"diff"`     // with --diff
	Rendered string           `json:"rendered"` // the whole file, without either

	template, result []byte
}

type renderedChange struct {
	Path string `json:"path"`
	Line int    `json:"line"`
	From string `json:"from"`
	To   string `json:"to"`
}

// render renders everything before it writes anything, so that a mistake in the
// arguments leaves no half of it.
func (a *app) render(ctx context.Context, o renderOptions, args []string) error {
	overrides, err := o.overrides()
	if err != nil {
		return usageError{err}
	}
	sets, err := parseSets(o.set)
	if err != nil {
		return usageError{err}
	}
	paths, unfound := inputs(args)
	if err := o.checkTargets(paths); err != nil {
		return usageError{err}
	}
	var files []renderedFile
	var used repositories
	unread := a.eachFile(ctx, paths, func(path string, data []byte) error {
		pod, err := manifests.Parse(data)
		if err == nil {
			files = append(files, renderedFile{File: path, template: data})
			used.add(pod.Images, overrides.Rewrites)
		}
		return err
	})
	unread = errors.Join(unfound, unread)
	tags, err := used.choose(sets, overrides.Rewrites)
	if err != nil && unread == nil { // what it fits may stand in a file that was not read
		return usageError{err}
	}
	overrides.Tag = func(_ string, img manifests.Image) (string, bool) {
		tag, ok := tags[manifests.SplitReference(img.Reference).Name]
		return tag, ok
	}
	errs, missing := []error{unread}, []string(nil)
	done := files[:0]
	for _, f := range files {
		if err := f.render(overrides); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", f.File, err))
			missing = append(missing, missingTags(err)...)
			continue
		}
		done = append(done, f)
	}
	err = errors.Join(append(errs, a.printRendered(o, done))...)
	if len(missing) > 0 {
		return missingTagsError{err, missing}
	}
	return err
}

func (f *renderedFile) render(overrides manifests.Overrides) error {
	out, err := manifests.Render(f.template, overrides)
	if err != nil {
		return err
	}
	f.result, f.Changes, f.Left = out.Data, []renderedChange{}, []agent.Left{}
	for _, c := range out.Changes {
		f.Changes = append(f.Changes, renderedChange(c))
	}
	for _, l := range out.Left {
		f.Left = append(f.Left, agent.Left{Path: l.Path, Line: l.Line, Reference: l.Reference, Reason: l.Reason})
	}
	return nil
}

// checkTargets refuses what --to would write over: another result, or an input.
func (o renderOptions) checkTargets(paths []string) error {
	if o.to == "" {
		return nil
	}
	from := map[string]string{}
	for _, path := range paths {
		name := filepath.Base(path)
		if path == standardInput {
			return errors.New("--to: standard input has no name")
		}
		if other, twice := from[name]; twice {
			return fmt.Errorf("--to %s: %s and %s have one name", o.to, other, path)
		}
		from[name] = path
		input, err := os.Stat(path)
		if err != nil {
			continue // reported when it is read
		}
		if target, err := os.Stat(filepath.Join(o.to, name)); err == nil && os.SameFile(input, target) {
			return fmt.Errorf("--to %s: %s would be written over", o.to, path)
		}
	}
	return nil
}

// printRendered writes what was rendered to where it was asked for.
func (a *app) printRendered(o renderOptions, files []renderedFile) error {
	for n := range files {
		f := &files[n]
		switch {
		case o.diff:
			f.Diff = manifests.Diff(f.File, f.File+" (rendered)", f.template, f.result)
		case o.to != "":
			if err := writeTo(o.to, filepath.Base(f.File), f.result); err != nil {
				return err
			}
			f.To = filepath.Join(o.to, filepath.Base(f.File))
		default:
			f.Rendered = string(f.result)
		}
	}
	if a.output == "json" {
		return printLines(a.encoder(), files)
	}
	var out bytes.Buffer
	for _, f := range files {
		for _, l := range f.Left {
			fmt.Fprintf(a.err, "%s:%d: left alone: %s (%s)\n", f.File, l.Line, terminal.Quoted(l.Reference), l.Reason)
		}
		if f.Rendered != "" && out.Len() > 0 {
			separate(&out, f.result)
		}
		out.WriteString(f.Diff + f.Rendered)
	}
	return a.document(out.Bytes())
}

// separate ends a document, unless the next one begins with a mark of its own.
func separate(out *bytes.Buffer, next []byte) {
	if !bytes.HasSuffix(out.Bytes(), []byte("\n")) {
		out.WriteByte('\n')
	}
	for line := range bytes.Lines(next) {
		switch text := bytes.TrimSpace(line); {
		case bytes.HasPrefix(line, []byte("---")):
			return
		case len(text) > 0 && text[0] != '#':
			out.WriteString("---\n")
			return
		}
	}
}

func (o renderOptions) overrides() (manifests.Overrides, error) {
	if o.policy != "" && o.policy != manifests.PullAlways && o.policy != manifests.PullIfNotPresent {
		return manifests.Overrides{}, fmt.Errorf("--pull-policy %q: Always or IfNotPresent", o.policy)
	}
	out := manifests.Overrides{PullPolicy: o.policy}
	for _, s := range o.rewrite {
		from, to, ok := strings.Cut(s, "=")
		if !ok || from == "" || to == "" {
			return manifests.Overrides{}, fmt.Errorf("--rewrite %q: want FROM=TO", s)
		}
		out.Rewrites = append(out.Rewrites, manifests.Rewrite{From: from, To: to})
	}
	return out, manifests.CheckRewrites(out.Rewrites)
}

func writeTo(dir, name string, data []byte) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	d, err := atomicfile.OpenDir(dir)
	if err != nil {
		return err
	}
	_, err = d.Write(name, data, atomicfile.Options{Mode: 0o644})
	return errors.Join(err, d.Close())
}
