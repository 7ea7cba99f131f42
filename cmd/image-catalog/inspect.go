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
	"github.com/kubic-project/image-update-agent/internal/terminal"
)

// inspected is `inspect --output json`.
type inspected struct {
	Channel  string            `json:"channel"`
	Name     string            `json:"name"`
	Version  uint64            `json:"version"`
	Digest   digest.Digest     `json:"digest"`
	Created  time.Time         `json:"created"`
	Expires  *time.Time        `json:"expires,omitempty"`
	SignedBy string            `json:"signedBy"` // fingerprint; empty: no key of --trust or --key
	Images   []catalog.Page    `json:"images"`
	Waiting  []publish.Waiting `json:"waiting"`
	History  []publish.Step    `json:"history,omitempty"`
}

func (a *app) inspectCommand() *cobra.Command {
	history, most := false, 20
	cmd := &cobra.Command{
		Use:   "inspect CHANNEL [IMAGE...]",
		Short: "Show what a channel offers, or all releases of images",
		Example: `  image-catalog inspect prod
  image-catalog inspect prod velum
  image-catalog inspect prod --history --limit 5
  image-catalog inspect prod --output json | jq '.images[].releases[0].digest'`,
		Args: wantArgs(true, "CHANNEL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := a.publisher(cmd.Context())
			if err != nil {
				return err
			}
			v, err := p.Read(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			out, err := a.inspect(cmd.Context(), p, v, args[1:])
			if err == nil && history {
				out.History, err = p.History(cmd.Context(), v, max(most, 1))
			}
			if err != nil {
				return err
			}
			return a.print(out, func(page *terminal.Page) { writeInspected(page, out, len(args) > 1) })
		},
	}
	cmd.Flags().BoolVar(&history, "history", false, "show the last versions, too, and what changed")
	cmd.Flags().IntVar(&most, "limit", most, "so many versions")
	return a.withOutput(cmd)
}

func (a *app) inspect(
	ctx context.Context, p *publish.Publisher, v publish.Version, words []string,
) (inspected, error) {
	out := inspected{
		Channel: v.Channel, Name: v.Name, Version: v.Version, Digest: v.Digest, Created: v.Created,
		SignedBy: v.SignedBy, Images: []catalog.Page{},
	}
	if !v.Expires.IsZero() {
		out.Expires = &v.Expires
	}
	var images []string
	for _, word := range words {
		image, err := publish.FindImage(v, word)
		if err != nil {
			return out, err
		}
		images = append(images, image)
	}
	pages, err := p.Pages(ctx, v, images...)
	if err != nil {
		return out, err
	}
	for _, ref := range v.Pages {
		if page, ok := pages[ref.Image]; ok {
			out.Images = append(out.Images, page)
		}
	}
	if out.Waiting, err = p.Waits(ctx, v); out.Waiting == nil {
		out.Waiting = []publish.Waiting{}
	}
	return out, err
}

func writeInspected(page *terminal.Page, v inspected, all bool) {
	page.Line(fmt.Sprintf("%s of %s, version %d", v.Channel, v.Name, v.Version))
	page.Line("Digest:  " + v.Digest.String())
	page.Line("Created: " + page.Past(v.Created))
	if v.Expires != nil {
		page.Line("Expires: " + page.Next(*v.Expires))
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
	writeHistory(page, v)
	for _, w := range v.Waiting {
		page.Line(fmt.Sprintf("%s is not folded: %s", w.Op, w.Why))
	}
}

// short is a digest for people, long enough to tell it from others.
func short(d digest.Digest) string { return d.String()[:min(len(d), len("sha256:")+12)] }

// marks says what a release has beside its digest.
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
		out = append(out, fmt.Sprintf("rollout from %s for %d h", page.Clock(o.From), o.Hours))
	}
	if len(r.Critical) > 0 {
		out = append(out, "critical: "+strings.Join(r.Critical, ", "))
	}
	return strings.Join(out, "; ")
}

func writeHistory(page *terminal.Page, v inspected) {
	if len(v.History) == 0 {
		return
	}
	rows := [][]string{{"VERSION", "CREATED", "DIGEST", "CHANGED"}}
	for _, s := range v.History {
		rows = append(rows, []string{
			fmt.Sprint(s.Version), page.Clock(s.Created), short(s.Digest), terminal.Few(s.Images),
		})
	}
	page.Line("")
	page.Rows(rows)
}
