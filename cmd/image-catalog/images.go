// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/kubic-project/image-update-agent/internal/catalog/publish"
	"github.com/kubic-project/image-update-agent/internal/cli"
)

// The formats of `images`.
const (
	formatList    = "list"
	formatSkopeo  = "skopeo-sync"
	formatRegsync = "regsync"
)

func (a *app) imagesCommand() *cobra.Command {
	var m publish.Mirrored
	format, to := formatList, ""
	cmd := &cobra.Command{
		Use:   "images CHANNEL",
		Short: "Print all that a mirror of a channel has to copy",
		Long: `images prints what a mirror has to copy: images by digest, their signatures, and the
catalog, which comes last, so that what it lists is there before it.

Formats: list prints REPOSITORY:TAG@DIGEST in each line, or with --to a source and a
target, as crane, skopeo copy and regctl want them. skopeo-sync prints YAML for
"skopeo sync --src yaml", and regsync the configuration of regsync, which wants --to. Below
the mirror, whole names stand, with _ before a port: registry.example.com_5000/velum.`,
		Example: `  image-catalog images prod --to mirror.example.com | xargs -n 2 crane copy
  image-catalog images prod --format skopeo-sync >prod.yaml
  image-catalog images prod --format regsync --to mirror.example.com >regsync.yaml`,
		Args: wantArgs(false, "CHANNEL"),
		RunE: func(cmd *cobra.Command, args []string) error { return a.images(cmd, args[0], format, to, m) },
	}
	cmd.Flags().StringVar(&format, "format", format, "list, skopeo-sync or regsync")
	cmd.Flags().StringVar(&to, "to", "", "the mirror, below which whole names stand: HOST or HOST/PATH")
	cmd.Flags().IntVar(&m.Newest, "newest", 0, "only so many of the newest releases of each short tag (default: all)")
	cmd.Flags().BoolVar(&m.Floating, "floating", false, "short and intermediate tags, too, as the channel has them")
	cli.Values(cmd, "format", formatList, formatSkopeo, formatRegsync)
	return a.withOutput(cmd)
}

func (a *app) images(cmd *cobra.Command, channel, format, to string, m publish.Mirrored) error {
	write, known := formats[format]
	if to != "" {
		if _, err := (publish.Copy{Repository: "registry.example.com/image", Tag: "1"}).Target(to); err != nil {
			return cli.Usage(fmt.Errorf("--to: %w", err))
		}
	}
	switch {
	case !known:
		return cli.Usage(fmt.Errorf("--format %q: list, skopeo-sync or regsync", format))
	case format == formatRegsync && to == "":
		return cli.Usage(fmt.Errorf("--format %s: --to MIRROR is missing", format))
	case format == formatSkopeo && m.Floating:
		return cli.Usage(fmt.Errorf("--floating: %s copies tags as they are, and floating tags may be ahead", format))
	}
	p, err := a.publisher(cmd.Context())
	if err != nil {
		return err
	}
	v, err := p.Current(cmd.Context(), channel)
	if err != nil {
		return err
	}
	copies, err := p.Copies(cmd.Context(), v, m)
	if err != nil {
		return err
	}
	a.progress.end()
	if a.flags.output == "json" {
		return cli.PrintJSON(a.out, copies)
	}
	out := bufio.NewWriter(a.out)
	if err := write(out, copies, to); err != nil {
		return err
	}
	return out.Flush()
}

var formats = map[string]func(w io.Writer, copies []publish.Copy, to string) error{
	formatList: writeList, formatSkopeo: writeSkopeo, formatRegsync: writeRegsync,
}

func writeList(w io.Writer, copies []publish.Copy, to string) error {
	for _, c := range copies {
		if to == "" {
			fmt.Fprintf(w, "%s:%s@%s\n", c.Repository, c.Tag, c.Digest)
			continue
		}
		target, err := c.Target(to)
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "%s %s\n", c.Source(), target)
	}
	return nil
}

// writeSkopeo prints skopeo-sync's YAML. skopeo copies in an order of its own: a mirror may have
// the catalog first, and its nodes wait for what is missing.
func writeSkopeo(w io.Writer, copies []publish.Copy, _ string) error {
	tags := map[string]map[string][]string{}
	var hosts []string
	paths := map[string][]string{}
	for _, c := range copies {
		host, path := c.Host()
		if tags[host] == nil {
			tags[host] = map[string][]string{}
			hosts = append(hosts, host)
		}
		if tags[host][path] == nil {
			paths[host] = append(paths[host], path)
		}
		tags[host][path] = append(tags[host][path], c.Tag)
	}
	for _, host := range hosts {
		fmt.Fprintf(w, "%q:\n  images:\n", host)
		for _, path := range paths[host] {
			fmt.Fprintf(w, "    %q:\n", path)
			for _, tag := range tags[host][path] {
				fmt.Fprintf(w, "    - %q\n", tag)
			}
		}
	}
	return nil
}

func writeRegsync(w io.Writer, copies []publish.Copy, to string) error {
	fmt.Fprint(w, "version: 1\nsync:\n")
	for _, c := range copies {
		target, err := c.Target(to)
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "- source: %q\n  target: %q\n  type: image\n", c.Source(), target)
	}
	return nil
}
