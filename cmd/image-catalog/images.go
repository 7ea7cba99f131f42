// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kubic-project/image-update-agent/internal/catalog/publish"
	"github.com/kubic-project/image-update-agent/internal/face/cli"
)

// The formats of `images`.
const (
	formatList    = "list"
	formatSkopeo  = "skopeo-sync"
	formatRegsync = "regsync"
)

// lines are the formats that print each copy for itself, with its source and its target.
var lines = map[string]string{
	formatList:    "%s %s\n",
	formatRegsync: "- source: %q\n  target: %q\n  type: image\n",
	"crane":       "crane copy %s %s\n",
	"oras":        "oras copy %s %s\n",
	"regctl":      "regctl image copy %s %s\n",
	"skopeo":      "skopeo copy --all --preserve-digests docker://%s docker://%s\n", //nolint:dupword // two images
}

// allFormats names the formats.
const allFormats = "list, crane, oras, regctl, skopeo, skopeo-sync or regsync"

func (a *app) imagesCommand() *cobra.Command {
	var m publish.Mirrored
	format, to := formatList, ""
	cmd := &cobra.Command{
		Use:   "images CHANNEL",
		Short: "Print what a mirror of a channel must copy",
		Long: `images prints what a mirror must copy: images by digest, their signatures, and at the end the
catalog, so that the mirror has everything that the catalog lists.

Formats: list prints REPOSITORY:TAG@DIGEST in each line, or with --to a source and a target.
crane, regctl, oras and skopeo print commands of these programs, and need --to.
skopeo-sync prints YAML for "skopeo sync --src yaml", regsync the configuration of regsync,
which needs --to. A mirror keeps the whole name of an image, with _ before a port:
registry.example.com_5000/velum.`,
		Example: `  image-catalog images prod --to mirror.example.com | xargs -n 2 crane copy
  image-catalog images prod --format oras --to mirror.example.com | sh -e
  image-catalog images prod --format skopeo-sync >prod.yaml
  image-catalog images prod --format regsync --to mirror.example.com >regsync.yaml`,
		Args: wantArgs(false, "CHANNEL"),
		RunE: func(cmd *cobra.Command, args []string) error { return a.images(cmd, args[0], format, to, m) },
	}
	cmd.Flags().StringVar(&format, "format", format, allFormats)
	cmd.Flags().StringVar(&to, "to", "", "mirror that keeps the whole name of each image: HOST or HOST/PATH")
	cmd.Flags().IntVar(&m.Newest, "newest", 0, "only this many of the newest releases of each short tag (default: all)")
	cmd.Flags().BoolVar(&m.Floating, "floating", false, "also short and intermediate tags, as the channel has them")
	cli.Values(cmd, "format", strings.Split(strings.Replace(allFormats, " or ", ", ", 1), ", ")...)
	return a.withOutput(cmd)
}

func (a *app) images(cmd *cobra.Command, channel, format, to string, m publish.Mirrored) error {
	_, hasLines := lines[format]
	if to != "" {
		if _, err := (publish.Copy{Repository: "registry.example.com/image", Tag: "1"}).Target(to); err != nil {
			return cli.Usage(fmt.Errorf("--to: %w", err))
		}
	}
	switch {
	case !hasLines && format != formatSkopeo:
		return cli.Usage(fmt.Errorf("--format %q: want %s", format, allFormats))
	case m.Newest < 0:
		return cli.Usage(errors.New("--newest: want at least 1"))
	case hasLines && format != formatList && to == "":
		return cli.Usage(fmt.Errorf("--format %s requires --to MIRROR", format))
	case format == formatSkopeo && m.Floating:
		return cli.Usage(fmt.Errorf("--floating: %s copies tags, and a floating tag may be ahead of the channel", format))
	}
	p, v, err := a.view(cmd.Context(), channel)
	if err != nil {
		return err
	}
	copies, err := p.Copies(cmd.Context(), v.Version, m)
	if err != nil {
		return err
	}
	if format == formatSkopeo && isOld(channel) {
		copies = slices.DeleteFunc(copies, func(c publish.Copy) bool { return c.IsChannel(v.Version) })
	}
	a.progress.end()
	if a.flags.output == "json" {
		return cli.PrintJSON(a.out, copies)
	}
	out := bufio.NewWriter(a.out)
	if format == formatSkopeo {
		writeSkopeo(out, copies)
	} else if err := writeLines(out, format, copies, to); err != nil {
		return err
	}
	return out.Flush()
}

func writeLines(out io.Writer, format string, copies []publish.Copy, to string) error {
	if format == formatRegsync {
		fmt.Fprint(out, "version: 1\nsync:\n")
	}
	for _, c := range copies {
		if to == "" {
			fmt.Fprintf(out, "%s:%s@%s\n", c.Repository, c.Tag, c.Digest)
			continue
		}
		target, err := c.Target(to)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, lines[format], c.Source(), target)
	}
	return nil
}

// writeSkopeo prints skopeo-sync's YAML. skopeo copies in an order of its own: a mirror may have
// the catalog first, and its nodes wait for the missing images.
func writeSkopeo(w io.Writer, copies []publish.Copy) {
	var hosts []string
	paths, tags := map[string][]string{}, map[string][]string{} // by host, by repository
	for _, c := range copies {
		host, path := c.Host()
		if paths[host] == nil {
			hosts = append(hosts, host)
		}
		if tags[c.Repository] == nil {
			paths[host] = append(paths[host], path)
		}
		tags[c.Repository] = append(tags[c.Repository], c.Tag)
	}
	for _, host := range hosts {
		fmt.Fprintf(w, "%q:\n  images:\n", host)
		for _, path := range paths[host] {
			fmt.Fprintf(w, "    %q:\n", path)
			for _, tag := range tags[host+"/"+path] {
				fmt.Fprintf(w, "    - %q\n", tag)
			}
		}
	}
}
