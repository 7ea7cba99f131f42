// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/spf13/cobra"

	"github.com/kubic-project/image-update-agent/internal/catalog"
	"github.com/kubic-project/image-update-agent/internal/catalog/publish"
	"github.com/kubic-project/image-update-agent/internal/face/terminal"
)

// inspected is `inspect --output json`.
type inspected struct {
	Channel  string            `json:"channel"`
	Name     string            `json:"name"`
	Version  uint64            `json:"version"`
	Digest   digest.Digest     `json:"digest"`
	Created  time.Time         `json:"created"`
	Expires  *time.Time        `json:"expires,omitempty"`
	Frozen   *time.Time        `json:"frozen,omitempty"` // until then
	SignedBy string            `json:"signedBy"`         // fingerprint; empty: no key of --trust or --key
	Images   []catalog.Page    `json:"images"`
	Waiting  []publish.Waiting `json:"waiting"`
	History  []catalog.Entry   `json:"history,omitempty"`
}

func (a *app) inspectCommand() *cobra.Command {
	history, most := false, 20
	cmd := &cobra.Command{
		Use:   "inspect CHANNEL [IMAGE...]",
		Short: "Show what a channel offers, or all releases of an image",
		Long: `inspect shows the newest release of each image of a channel. With arguments it shows all
releases of these images: an IMAGE is REPOSITORY, REPOSITORY:TAG or the end of one. CHANNEL
may be a version: CHANNEL@VERSION.`,
		Example: `  image-catalog inspect prod
  image-catalog inspect prod velum
  image-catalog inspect prod --history --limit 5
  image-catalog inspect prod --output json | jq '.images[] | first(.releases[] | select(.withdrawn | not)).digest'`,
		Args: wantArgs(true, "CHANNEL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := a.publisher(cmd.Context())
			if err != nil {
				return err
			}
			v, err := read(cmd.Context(), p, args[0])
			if err != nil {
				return err
			}
			out, err := a.inspect(cmd.Context(), p, v, args[1:])
			if err == nil && !isOld(args[0]) {
				out.Waiting, err = p.Waits(cmd.Context(), args[0])
			}
			var log []catalog.Entry
			if err == nil && history {
				log, err = p.Log(cmd.Context(), v)
				out.History = matching(log, args[1:], max(most, 1))
			}
			if err != nil {
				return err
			}
			return a.print(out, func(page *terminal.Page) { writeInspected(page, out, steersOf(log), len(args) > 1) })
		},
	}
	cmd.Flags().BoolVar(&history, "history", false, "also show the last changes, as log does")
	cmd.Flags().IntVar(&most, "limit", most, "show at most this many changes")
	return a.withOutput(cmd)
}

func (a *app) inspect(
	ctx context.Context, p *publish.Publisher, v publish.Version, words []string,
) (inspected, error) {
	out := inspected{
		Channel: v.Channel, Name: v.Name, Version: v.Version, Digest: v.Digest, Created: v.Created,
		SignedBy: v.SignedBy, Images: []catalog.Page{}, Waiting: []publish.Waiting{},
	}
	if !v.Expires.IsZero() {
		out.Expires = &v.Expires
	}
	if a.now().Before(v.Frozen) {
		out.Frozen = &v.Frozen
	}
	images, tags, err := namedImages(v, words)
	if err != nil {
		return out, err
	}
	pages, err := p.Pages(ctx, v, images...)
	if err != nil {
		return out, err
	}
	for _, ref := range v.Pages {
		page, ok := pages[ref.Image]
		if !ok {
			continue
		}
		if page, err = publish.OnlyTags(v, page, tags[ref.Image]); err != nil {
			return out, err
		}
		out.Images = append(out.Images, page)
	}
	return out, nil
}

// namedImages returns the images that words name, and the named tags of each. No words, no tags: all.
func namedImages(v publish.Version, words []string) (images []string, tags map[string][]string, err error) {
	tags = map[string][]string{}
	for _, word := range words {
		name, tag := catalog.SplitMember(word)
		if strings.Contains(tag, "/") { // of a port
			name, tag = word, ""
		}
		image, err := publish.FindImage(v, name)
		if err != nil {
			return nil, nil, err
		}
		images = append(images, image)
		if tag != "" {
			tags[image] = append(tags[image], tag)
		}
	}
	return images, tags, nil
}

func writeInspected(page *terminal.Page, v inspected, steers map[string]string, all bool) {
	page.Line(fmt.Sprintf("%s of %s, version %d", v.Channel, v.Name, v.Version))
	page.Line("Digest:  " + v.Digest.String())
	page.Line("Created: " + page.Past(v.Created))
	if v.Expires != nil {
		page.Line("Expires: " + page.Next(*v.Expires))
	}
	if v.Frozen != nil {
		page.Line("Frozen:  until " + page.Next(*v.Frozen))
	}
	if v.SignedBy != "" {
		page.Line("Signed:  " + v.SignedBy)
	}
	rows := [][]string{{"IMAGE", "TAG", "DIGEST", ""}}
	for _, image := range v.Images {
		for _, r := range image.Releases {
			if !all && r.Withdrawn != nil {
				continue
			}
			rows = append(rows, []string{image.Image, r.Tag, short(r.Digest), marks(page, r)})
			if !all {
				break
			}
		}
	}
	if len(rows) > 1 {
		page.Line("")
		page.Rows(rows)
	}
	if len(v.History) > 0 {
		page.Line("")
		writeLog(page, v.History, steers)
	}
	for _, w := range v.Waiting {
		page.Line(fmt.Sprintf("Not published yet: %s: %s", w.Op, w.Why))
	}
}

// short is a digest for people, long enough to tell it from others.
func short(d digest.Digest) string { return d.String()[:min(len(d), len("sha256:")+12)] }

// marks returns the withdrawal, the set and the rollout of a release as text.
func marks(page *terminal.Page, r catalog.Release) string {
	var out []string
	if w := r.Withdrawn; w != nil {
		text := "withdrawn: " + w.Reason
		if w.To != "" {
			text += ", instead " + w.To
		}
		out = append(out, text)
	}
	if r.Set != "" {
		out = append(out, "set "+r.Set)
	}
	if o := r.Rollout; o != nil {
		if o.Paused != nil {
			out = append(out, fmt.Sprintf("rollout paused at %d %%", o.Share(page.Now)))
		} else {
			out = append(out, fmt.Sprintf("rollout from %s for %d h", page.Clock(o.From), o.Hours))
		}
	}
	if text := r.Advisory.String(); text != "" {
		out = append(out, text)
	}
	if len(r.Critical) > 0 {
		out = append(out, "critical: "+strings.Join(r.Critical, ", "))
	}
	return strings.Join(out, "; ")
}
