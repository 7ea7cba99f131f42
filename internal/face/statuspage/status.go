// SPDX-License-Identifier: Apache-2.0

// Package statuspage is what the verbs show people of the agent's documents: the status, a plan, the outcomes of an
// apply, and the progress of what takes long.
package statuspage

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/kubic-project/image-update-agent/agent/fleet"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/face/terminal"
)

// margin is as wide as the labels of the page's head.
const margin = "             "

// labelled is a label of the head.
func labelled(text string) string { return text + margin[len(text):] }

// page is a status that is being written.
type page struct {
	*terminal.Page

	s     status.Status
	away  bool     // no daemon answers: the status is the last that one has written
	aside []string // pod manifests that are set aside, without a daemon
}

// Status writes what the node is, since when, why, what to do, then image by image, and what stands in the way, each
// once and with what ends it. away: no daemon answers; then aside are the pod manifests that are set aside.
func Status(to *terminal.Page, s status.Status, away bool, aside ...string) error {
	p := &page{to, s, away, aside}
	p.head()
	p.images()
	p.errors()
	p.unstaged()
	p.down()
	p.withdrawn()
	p.rolledBack()
	p.holds()
	p.standingHolds()
	p.waitedFor()
	p.notAllowed()
	p.sources()
	p.localRegistryLeft()
	p.notes()
	return p.Flush()
}

// nearlySpent is the part of the budget below which it is shown: a tenth.
const nearlySpent = 10

func (p *page) head() {
	s := p.s
	p.Text(labelled("State:"))
	p.Painted(colourOf(s.State), string(s.State))
	p.Line(" since " + p.Past(s.Since))
	reason, _ := p.reason()
	p.Item(margin, reason)
	if waiting := p.waitingFor(); waiting != "" {
		p.Item(labelled("Waiting:"), "for approval: "+waiting)
	}
	p.Item(labelled("What to do:"), p.advice())
	last := "never"
	if s.LastCheck != nil {
		last = p.Past(*s.LastCheck)
	}
	p.Item(labelled("Last check:"), last)
	p.Item(labelled("Next check:"), p.nextCheck())
	if a := s.Auto; a != nil {
		p.Item(labelled("Automatic:"), p.autoLine(*a))
	}
	p.work()
	if c := s.Catalog; c != nil {
		p.Item(labelled("Catalog:"), p.catalogLine(*c))
	}
	if l := s.Lock; l != nil && l.State != fleet.LockFree {
		p.Item(labelled("Lock:"), p.lockLine(*l))
	}
	for n, line := range p.localRegistryLines() {
		label := labelled("Local:")
		if n > 0 {
			label = margin
		}
		p.Item(label, line)
	}
	if hosts := hostsOf(s.Images); hosts != "" {
		p.Item(labelled("Answered by:"), hosts)
	}
	if b := s.Budget; b != nil && b.Remaining*nearlySpent < b.PerHour {
		p.Item(labelled("Requests:"), fmt.Sprintf("%d of %d left this hour (requestsPerHour)", b.Remaining, b.PerHour))
	}
	switch now := s.Progress; {
	case now != nil:
		p.Item(labelled("Now:"), now.Phase+" "+now.Reference)
	case s.Activity != status.ActivityNone:
		p.Item(labelled("Now:"), string(s.Activity))
	}
}

// work is what was interrupted, and the pulls.
func (p *page) work() {
	s := p.s
	if i := s.Interrupted; i != nil {
		p.Item(labelled("Interrupted:"), i.Work+" at "+p.Clock(i.At)+" by "+cmp.Or(i.For, "a request")+
			", continues afterwards")
	}
	for n, pull := range s.Pulls {
		label := labelled("Pulling:")
		if n > 0 {
			label = margin
		}
		p.Item(label, progressLine(pull))
	}
}

func colourOf(s status.State) terminal.Colour {
	switch s {
	case status.StateFailed:
		return terminal.Red
	case status.StateCurrent:
		return terminal.Green
	default:
		return terminal.Yellow
	}
}

// autoLine says when mode auto applies updates.
func (p *page) autoLine(a status.AutoStatus) string {
	switch {
	case a.ChangesAt == nil && a.Open:
		return "updates are applied as soon as they are ready"
	case a.ChangesAt == nil:
		return "no maintenance window opens again"
	case a.Open:
		return "a maintenance window is open until " + p.Next(*a.ChangesAt)
	default:
		return "the next maintenance window opens at " + p.Next(*a.ChangesAt)
	}
}

func (p *page) nextCheck() string {
	switch {
	case p.away:
		return "none while the daemon is stopped"
	case p.s.HasReason(status.KindStarting):
		return "not known yet"
	case p.s.NextCheck == nil:
		return "polling is off"
	default:
		return p.Next(*p.s.NextCheck)
	}
}

// hostsOf counts the images for which each host answered, in the order of their
// names.
func hostsOf(images []status.ImageStatus) string {
	answers := map[string]map[string]bool{}
	for _, i := range images {
		if i.Host == "" {
			continue
		}
		host := hostName(i.Host, i.Mirror)
		if answers[host] == nil {
			answers[host] = map[string]bool{}
		}
		answers[host][i.Image] = true
	}
	var out []string
	for _, host := range slices.Sorted(maps.Keys(answers)) {
		out = append(out, fmt.Sprintf("%s (%s)", host, terminal.Plural(len(answers[host]), "image")))
	}
	return strings.Join(out, ", ")
}

// hostName says who answered: two hosts have the images of one name.
func hostName(host string, mirror bool) string {
	if mirror {
		return "mirror " + host
	}
	return "upstream " + host
}

// images has a line for each container, below its pod manifest.
func (p *page) images() {
	switch {
	case len(p.s.Images) > 0:
	case p.s.State == status.StateFailed, p.s.HasReason(status.KindStarting):
		return // no observation has seen them
	default:
		p.Line("\nNo pod manifest uses an image that the agent can follow.")
		return
	}
	rows := [][]string{{"IMAGE", "RUNS", "OFFERED", "CHANGE"}}
	last := ""
	for n, i := range p.s.Images {
		if file := fileOf(i); n == 0 || file != last {
			rows = append(rows, []string{file})
			last = file
		}
		rows = append(rows, []string{"  " + imageName(i), p.runs(i), name(i.Offered), changeText(i)})
	}
	p.Line("")
	if !p.Fits(rows) {
		p.stacked(rows[1:])
		return
	}
	p.Rows(rows)
}

// fileOf is the pod manifest of an image; one beside them is of the configuration.
func fileOf(i status.ImageStatus) string { return cmp.Or(i.PodManifest, "(configuration)") }

// stacked has what runs and what is offered one below the other.
func (p *page) stacked(rows [][]string) {
	for _, row := range rows {
		p.Line(row[0])
		if len(row) == 1 {
			continue
		}
		p.Line("    runs     " + row[1])
		if row[2] != "-" || row[3] != "-" {
			p.Line("    offered  " + row[2] + "  " + row[3])
		}
	}
}

// imageName is the container's name, and the image's, as `apply` and `hold` take
// it, where that is another.
func imageName(i status.ImageStatus) string {
	image := path.Base(i.Image)
	if i.Container == "" || i.Container == image {
		return image
	}
	return i.Container + " (" + image + ")"
}

func (p *page) runs(i status.ImageStatus) string {
	switch {
	case p.s.HasReason(status.KindStarting):
		return "unknown (follows " + cmp.Or(i.Follow, "-") + ")"
	case i.Running == nil && i.PodManifest != "":
		return "nothing (follows " + cmp.Or(i.Follow, "-") + ")"
	case i.Running != nil && i.Running.Tag == "":
		return name(i.Running) + " (follows " + cmp.Or(i.Follow, "-") + ")"
	default:
		return name(i.Running)
	}
}

// name is a digest's tag, else its first digits; the full one is in the JSON.
func name(n *status.Named) string {
	switch {
	case n == nil:
		return "-"
	case n.Tag != "":
		return n.Tag
	default:
		return n.Digest.Encoded()[:12]
	}
}

func changeText(i status.ImageStatus) string {
	change := cmp.Or(i.Change, "-")
	if i.Offered != nil && !i.Staged {
		change += " (not staged)"
	}
	if i.PickedUp {
		change += " (picked up)"
	}
	return change
}
