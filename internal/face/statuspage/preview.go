// SPDX-License-Identifier: Apache-2.0

package statuspage

import (
	"cmp"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/preview"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/face/terminal"
	"github.com/kubic-project/image-update-agent/manifests"
)

// WritePreview writes a row for each image: what it runs, what it would get, and what is newer with the setting that
// would allow it. Below the table are the images that a person has to do something about.
func WritePreview(w io.Writer, images []preview.Image, now time.Time) error {
	p := terminal.NewPage(w, now)
	rows, last := [][]string{{"POD, CONTAINER", "IMAGE", "RUNS", "WOULD GET", "NEWER"}}, ""
	for n, i := range images {
		if n == 0 || i.File != last {
			rows = append(rows, []string{i.File})
			last = i.File
		}
		if i.Reference != "" || i.Error == "" { // else the error is about the whole file
			rows = append(rows, rowsOfPreview(i)...)
		}
	}
	switch {
	case len(images) == 0:
	case p.Fits(rows):
		p.Rows(rows)
	default:
		stackedPreview(p, rows[1:])
	}
	each(p, images, "Unknown:", func(i preview.Image) []string { return []string{i.Error} })
	each(p, images, "Held:", func(i preview.Image) []string { return []string{i.Held} })
	each(p, images, "Left as it is:", func(i preview.Image) []string {
		if i.Untouched == "" {
			return nil
		}
		return []string{manifests.ReasonText(i.Untouched)}
	})
	each(p, images, "Rebuilds only:", func(i preview.Image) []string {
		if i.RebuildsOnly == nil {
			return nil
		}
		return []string{i.RebuildsOnly.Reason + "; " + understood(*i.RebuildsOnly)}
	})
	each(p, images, "Notes:", func(i preview.Image) []string { return i.Notes })
	return p.Flush()
}

// rowsOfPreview returns the rows of an image: one, and one more for each further newer tag.
func rowsOfPreview(i preview.Image) [][]string {
	is := manifests.SplitReference(i.Reference)
	runs := cmp.Or(is.Tag, "latest")
	if d := digest.Digest(is.Digest); is.Tag == "" && d.Validate() == nil {
		runs = name(&status.Named{Digest: d})
	}
	if i.Reference == "" {
		runs = "-"
	}
	gets, newer := "-", []string{"-"}
	switch {
	case i.Error != "":
		gets, newer = "unknown", []string{"unknown"}
	case i.Offered != "" && i.Held != "":
		newer = []string{i.Offered + " (held)"}
	case i.Offered != "":
		gets = i.Offered + " (" + i.Change + ")"
	}
	if len(i.NotAllowed) > 0 {
		newer = slices.DeleteFunc(newer, func(cell string) bool { return cell == "-" })
		for _, no := range i.NotAllowed {
			by := allowing(no)
			if i.Held != "" {
				by = "held"
			}
			newer = append(newer, no.Tag+" ("+by+")")
		}
	}
	rows := [][]string{{"  " + cmp.Or(i.Container, "(volume)"), cmp.Or(i.Repository, is.Name, "-"), runs, gets, newer[0]}}
	for _, more := range newer[1:] {
		rows = append(rows, []string{"", "", "", "", more})
	}
	return rows
}

// stackedPreview writes the rows, without their titles, one cell below the other.
func stackedPreview(p *terminal.Page, rows [][]string) {
	for _, row := range rows {
		switch {
		case len(row) == 1:
			p.Line(row[0])
			continue
		case row[0] != "":
			p.Line(row[0] + "  " + row[1])
			p.Line("    runs       " + row[2])
			if row[3] != "-" {
				p.Line("    would get  " + row[3])
			}
		}
		if row[4] != "-" {
			p.Line("    newer      " + row[4])
		}
	}
}

// each writes a section, if it has an item: each text once, after the images that it is about.
func each(p *terminal.Page, images []preview.Image, title string, of func(i preview.Image) []string) {
	about, texts := map[string][]string{}, []string{}
	for _, i := range images {
		place := i.File
		if i.Reference != "" || i.Container != "" {
			place = cmp.Or(i.Reference, i.Container)
		}
		for _, text := range of(i) {
			if text == "" {
				continue
			}
			if about[text] == nil {
				texts = append(texts, text)
			}
			if !slices.Contains(about[text], place) {
				about[text] = append(about[text], place)
			}
		}
	}
	begin := p.Section(title)
	for _, text := range texts {
		begin()
		p.Item("  "+strings.Join(about[text], ", ")+": ", text)
	}
}
