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
	p.line(labelled("State:") + p.state(s.State) + " since " + clock(s.Since) + " (" + since + ")")
	p.item(margin, oneLine(p.reason(s)))
	p.item(labelled("What to do:"), p.advice(s))
	last := "never"
	if s.LastCheck != nil {
		last = clock(*s.LastCheck) + " (" + ago(p.now.Sub(*s.LastCheck)) + ")"
	}
	p.item(labelled("Last check:"), last)
	p.item(labelled("Next check:"), p.next(s))
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

// reason is why the node is in its state. Where each hold and each source is listed
// below, it is not said twice.
func (p *page) reason(s agent.Status) string {
	switch held, silent := heldBack(s), silentSources(s.Sources); {
	case s.State == agent.StateHeld && held > 0:
		return "there is something to do, and a reason not to: " + plural(held, "hold") + ", see below"
	case s.State == agent.StateStale && silent > 0:
		return fmt.Sprintf("what is known of %s is old: no answer, see below. What runs is not touched.",
			plural(silent, "repository"))
	default:
		return s.Reason
	}
}

// advice is the next thing a person can do.
func (p *page) advice(s agent.Status) string {
	switch {
	case p.away:
		return "start the daemon (systemctl start image-update-agent): nothing is asked, staged or applied without it"
	case s.State == agent.StateApplying:
		return "wait: it ends by itself, with a proof or with a rollback"
	case s.State == agent.StateFailed && strings.Contains(s.Reason, "was rolled back"):
		return "no hurry: the pod runs what ran before. If the node was the cause, image-update-agent apply --retry IMAGE; " +
			"if the image was, wait for a newer one"
	case s.State == agent.StateFailed:
		return "image-update-agent doctor; then journalctl -u image-update-agent"
	case s.State == agent.StateHeld:
		return "see what ends each hold, below"
	case s.State == agent.StateStale:
		return "bring the registry back; image-update-agent doctor says what is wrong on the way there"
	case s.State == agent.StateStaged:
		return "image-update-agent apply, when the pods may restart for some seconds"
	default:
		return "nothing"
	}
}

func (p *page) next(s agent.Status) string {
	switch {
	case p.away:
		return "not without the daemon"
	case s.NextCheck == nil:
		return "polling is off"
	default:
		return p.at(*s.NextCheck)
	}
}

// images has a line for each container, below its pod manifest.
func (p *page) images(s agent.Status) {
	if len(s.Images) == 0 {
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
