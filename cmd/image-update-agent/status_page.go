// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"path"
	"strings"

	"github.com/kubic-project/image-update-agent/agent"
)

// margin is as wide as the labels of the page's head.
const margin = "             "

// labelled is a label of the head.
func labelled(text string) string { return text + margin[len(text):] }

// status writes the page for people: what, since when, why, what to do, and then
// image by image.
func (p *page) status(s agent.Status) error {
	p.head(s)
	p.images(s)
	p.trouble(s)
	return p.w.Flush()
}

func (p *page) head(s agent.Status) {
	since := ago(p.now.Sub(s.Since))
	p.text(labelled("State:"))
	p.state(s.State)
	p.line(" since " + p.clock(s.Since) + " (" + since + ")")
	p.item(margin, p.reason(s))
	p.item(labelled("What to do:"), p.advice(s))
	last := "never"
	if s.LastCheck != nil {
		last = p.clock(*s.LastCheck) + " (" + ago(p.now.Sub(*s.LastCheck)) + ")"
	}
	p.item(labelled("Last check:"), last)
	p.item(labelled("Next check:"), p.next(s))
	if i := s.Interrupted; i != nil {
		p.item(labelled("Interrupted:"), i.Work+" at "+p.clock(i.At)+" by "+cmp.Or(i.For, "a request")+", goes on after it")
	}
	for n, pull := range s.Pulls {
		label := labelled("Pulling:")
		if n > 0 {
			label = margin
		}
		p.item(label, progressLine(pull))
	}
	if hosts := hostsOf(s.Images); hosts != "" {
		p.item(labelled("Answered by:"), hosts)
	}
	if b := s.Budget; b != nil && b.Left*nearlySpent < b.PerHour {
		p.item(labelled("Requests:"), fmt.Sprintf("%d of %d left in this hour (requestsPerHour)", b.Left, b.PerHour))
	}
	if now := s.Progress; now != nil {
		p.item(labelled("Now:"), now.Phase+" "+now.Reference)
	}
}

func (p *page) next(s agent.Status) string {
	switch {
	case p.away:
		return "not without the daemon"
	case s.Reason == starting:
		return "not known yet"
	case s.NextCheck == nil:
		return "polling is off"
	default:
		return p.at(*s.NextCheck)
	}
}

// images has a line for each container, below its pod manifest.
func (p *page) images(s agent.Status) {
	switch {
	case len(s.Images) > 0:
	case s.State == agent.StateFailed, s.Reason == starting:
		return // nobody has seen them
	default:
		p.line("\nNo pod manifest uses an image that can be followed.")
		return
	}
	rows := [][]string{{"IMAGE", "RUNS", "OFFERED", "CHANGE"}}
	last := ""
	for n, i := range s.Images {
		if file := cmp.Or(i.PodManifest, "(configuration)"); n == 0 || file != last {
			rows = append(rows, []string{file})
			last = file
		}
		rows = append(rows, []string{"  " + imageName(i), runs(i), name(i.Offered), changeText(i)})
	}
	p.line("")
	if p.width > 0 && total(rows) > p.width {
		p.stacked(rows[1:])
		return
	}
	p.rows("", rows)
}

// stacked has what runs and what is offered one below the other.
func (p *page) stacked(rows [][]string) {
	for _, row := range rows {
		p.line(row[0])
		if len(row) == 1 {
			continue
		}
		p.line("    runs     " + row[1])
		if row[2] != "-" || row[3] != "-" {
			p.line("    offered  " + row[2] + "  " + row[3])
		}
	}
}

func total(rows [][]string) int {
	sum := 0
	for _, width := range widthsOf(rows) {
		sum += width + 2
	}
	return sum - 2
}

// imageName is the container's name, and the image's, as `apply` and `hold` take
// it, where that is another.
func imageName(i agent.ImageStatus) string {
	image := path.Base(i.Image)
	if i.Container == "" || i.Container == image {
		return image
	}
	return i.Container + " (" + image + ")"
}

func runs(i agent.ImageStatus) string {
	switch {
	case i.Running == nil && i.PodManifest != "":
		return "nothing (follows " + dash(i.Follow) + ")"
	case i.Running != nil && i.Running.Tag == "":
		return name(i.Running) + " (follows " + dash(i.Follow) + ")"
	default:
		return name(i.Running)
	}
}

func changeText(i agent.ImageStatus) string {
	change := dash(i.Change)
	if i.Offered != nil && !i.Staged {
		change += " (not staged)"
	}
	if i.Adopted {
		change += " (adopted)"
	}
	return change
}

func plural(n int, what string) string {
	switch {
	case n == 1:
		return "1 " + what
	case strings.HasSuffix(what, "y"):
		return fmt.Sprintf("%d %sies", n, strings.TrimSuffix(what, "y"))
	default:
		return fmt.Sprintf("%d %ss", n, what)
	}
}
