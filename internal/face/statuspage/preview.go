// SPDX-License-Identifier: Apache-2.0

package statuspage

import (
	"cmp"
	"fmt"
	"io"
	"path"
	"time"

	"github.com/kubic-project/image-update-agent/agent/preview"
	"github.com/kubic-project/image-update-agent/internal/face/terminal"
	"github.com/kubic-project/image-update-agent/manifests"
)

// WritePreview writes what would be offered: a row for each image, and below them why nothing newer is.
func WritePreview(w io.Writer, images []preview.Image, now time.Time) error {
	p := terminal.NewPage(w, now)
	rows := [][]string{{"PLACE", "IMAGE", "TAG", "OFFERED", "CHANGE"}}
	for _, i := range images {
		rows = append(rows, []string{
			i.Place(), cmp.Or(i.Repository, i.Reference, "-"),
			cmp.Or(i.Follow, "-"),
			cmp.Or(i.Offered, "-"), cmp.Or(i.Change, "-"),
		})
	}
	if len(images) > 0 {
		p.Rows(rows)
	}
	eachImage(p, images, "Unknown:", func(i preview.Image, item func(label, text string)) {
		if i.Error != "" {
			item("", i.Error)
		}
	})
	eachImage(p, images, "Left as it is:", func(i preview.Image, item func(label, text string)) {
		if i.Untouched != "" {
			item("", manifests.ReasonText(i.Untouched))
		}
	})
	eachImage(p, images, "Newer but not allowed:", func(i preview.Image, item func(label, text string)) {
		for _, no := range i.NotAllowed {
			item(no.Tag, no.Rule+": "+no.Reason)
			p.Item("    allow    ", allowing(no))
		}
	})
	eachImage(p, images, "Rebuilds only:", func(i preview.Image, item func(label, text string)) {
		if i.RebuildsOnly != nil {
			item(i.RebuildsOnly.Tag, i.RebuildsOnly.Reason)
			p.Item("    instead  ", understood(*i.RebuildsOnly))
		}
	})
	eachImage(p, images, "Notes:", func(i preview.Image, item func(label, text string)) {
		for _, note := range i.Notes {
			item("", note)
		}
	})
	return p.Flush()
}

// eachImage writes a section, if it has an item. The same image of several containers is told of once.
func eachImage(
	p *terminal.Page, images []preview.Image, title string, write func(i preview.Image, item func(label, text string)),
) {
	begin := p.Section(title)
	seen := map[string]bool{}
	for _, i := range images {
		name := path.Base(cmp.Or(i.Repository, manifests.SplitReference(i.Reference).Name, i.Container, i.File))
		if key := fmt.Sprint(name, i.Reference, i.Error, i.Untouched, i.Notes); !seen[key] {
			seen[key] = true
			write(i, func(label, text string) {
				begin()
				if label != "" {
					label = " " + label
				}
				p.Item("  "+name+label+": ", text)
			})
		}
	}
}
