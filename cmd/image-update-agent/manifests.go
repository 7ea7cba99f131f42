// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/kubic-project/image-update-agent/internal/filerender"
	"github.com/kubic-project/image-update-agent/internal/nodefile"
	"github.com/kubic-project/image-update-agent/internal/outside"
	"github.com/kubic-project/image-update-agent/internal/terminal"
	"github.com/kubic-project/image-update-agent/manifests"
)

// maxPodManifest bounds a file, in bytes: the limit of the agent itself.
const maxPodManifest = 1 << 20

func (a *app) manifestsCommand() *cobra.Command {
	return group("manifests", "Show images of pod manifests, and render them, by hand",
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
		Short: "List every image reference: where it is, what it is, and whether it can be edited",
		Long:  `images lists every image reference of pod manifests. - is standard input.`,
		Example: `  image-update-agent manifests images /etc/kubernetes/manifests
  image-update-agent manifests images --output json velum.yaml | jq 'select(.editable | not)'`,
		Args: someArgs(1, "a file or directory"),
		RunE: func(cmd *cobra.Command, args []string) error {
			paths, unfound := inputs(args)
			var lines []imageLine
			errs := []error{unfound}
			for _, path := range paths { // one bad file does not hide the others
				var pod *manifests.File
				data, err := await(cmd.Context(), func() ([]byte, error) { return a.readFile(path) })
				if err == nil {
					pod, err = manifests.Parse(data)
				}
				if err != nil {
					errs = append(errs, fmt.Errorf("%s: %w", path, err))
					continue
				}
				for _, i := range pod.Images {
					lines = append(lines, imageLine{
						File: path, Line: i.Line, Column: i.Column, Container: i.Container, Kind: string(i.Kind),
						Reference: i.Reference, PullPolicy: i.PullPolicy, Editable: i.Editable, Reason: i.Reason,
					})
				}
			}
			return errors.Join(append([]error{a.printImages(lines)}, errs...)...)
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
			if !strings.HasPrefix(e.Name(), ".") && e.Type().IsRegular() {
				paths = append(paths, filepath.Join(arg, e.Name()))
			}
		}
	}
	return paths, unread
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
