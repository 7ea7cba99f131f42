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

	"github.com/kubic-project/image-update-agent/agent/catalog"
	"github.com/kubic-project/image-update-agent/agent/fleet"
	"github.com/kubic-project/image-update-agent/agent/localregistry"
	"github.com/kubic-project/image-update-agent/agent/status"
	format "github.com/kubic-project/image-update-agent/internal/catalog"
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

// Status writes the state of the node, since when, why, what to do, then each image, and what blocks it, each once and
// with what ends it. away: no daemon answers; then aside are the pod manifests that are set aside.
func Status(to *terminal.Page, s status.Status, away bool, aside ...string) error {
	p := &page{to, s, away, aside}
	p.head()
	p.images()
	p.brings()
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

// brings is what the publisher says of the offers.
func (p *page) brings() {
	p.Section("The updates bring, as the release catalog says:")
	for _, i := range p.s.Images {
		if i.Brings == nil {
			continue
		}
		p.Item("  "+fileOf(i)+" "+imageName(i)+": ", bringsText(*i.Brings))
		for _, n := range i.Brings.Notes {
			p.Item("    "+n.Tag+": ", n.Note)
		}
	}
}

// bringsText returns severity and fixes; of what the catalog does not list, there may be more.
func bringsText(b format.Brought) string {
	text := cmp.Or(b.Summary(), "no severity or fix is named")
	if b.Partial {
		text += "; or more, as it does not list all releases"
	}
	return text
}

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

// History writes the results of the last applies and rollbacks, the newest first.
func History(p *terminal.Page, entries []status.HistoryEntry) error {
	if len(entries) == 0 {
		p.Line("No updates or rollbacks yet.")
		return p.Flush()
	}
	for _, e := range entries {
		of := e.PodManifest
		if e.Container != "" {
			of += " " + e.Container
		}
		p.Item("", p.Past(e.At)+": "+string(e.Result)+": "+of)
		switch {
		case e.Container != "":
			p.Item("    release  ", cmp.Or(e.From, "?")+" -> "+e.To)
		case e.Change != "":
			p.Item("    change   ", e.Change)
		}
		if e.Severity != "" || len(e.Fixes) > 0 {
			p.Item("    brought  ", format.Brought{Severity: e.Severity, Fixes: e.Fixes}.Summary())
		}
		p.Item("    by       ", e.By.String())
		if e.Reason != "" {
			p.Item("    reason   ", e.Reason)
		}
	}
	return p.Flush()
}

// Lock writes the fleet lock as `lock show` does.
func Lock(to *terminal.Page, l fleet.LockStatus) error {
	p := &page{Page: to}
	p.Item(labelled("Lock:"), p.lockLine(l))
	if l.Lease != "" {
		p.Item(labelled("Lease:"), l.Lease+", for "+podsOf(l.Pods))
	} else {
		p.Item(labelled("Server:"), terminal.OneLine(l.Server))
		p.Item(labelled("Group:"), l.Group+", for "+podsOf(l.Pods))
	}
	p.Item(labelled("This node:"), l.ID)
	if len(l.Holders) > 0 { // another node
		p.Item(labelled("If gone:"), cmp.Or(l.Target().FreeCommand(), "release its lock on the server"))
	}
	return p.Flush()
}

func podsOf(pods string) string {
	if pods == "all" {
		return "all pods"
	}
	return "etcd and kube-apiserver"
}

// lockLine is the lock in one sentence.
func (p *page) lockLine(l fleet.LockStatus) string {
	if l.State == fleet.LockFree {
		return "not needed: no apply is running"
	}
	line := string(l.State) + " since " + p.Past(l.Since)
	if len(l.PodManifests) > 0 {
		line += " for " + strings.Join(l.PodManifests, ", ")
	}
	if l.Kept {
		line += "; kept because a pod did not become healthy: the fleet waits"
	}
	if l.Error != "" { // it names the holders
		line += ": " + terminal.OneLine(l.Error)
	}
	if l.State == fleet.LockRefused {
		line += "; the next apply asks again: image-update-agent apply"
	}
	if !l.RetryAt.IsZero() {
		line += "; next try at " + p.Next(l.RetryAt)
	}
	if l.Warning != "" {
		line += "; warning: " + terminal.OneLine(l.Warning)
	}
	return line
}

// localRegistryLines are the registries with the node's local registry, a line for each.
func (p *page) localRegistryLines() (lines []string) {
	own := p.s.LocalRegistry
	if own == nil {
		return nil
	}
	for _, r := range own.Registries {
		line := string(r.Position) + ": "
		switch tags := terminal.Plural(len(r.Tags), "tag") + " on " + r.Registry; {
		case own.Down != "":
			line += "not ready for " + tags
		case r.Position == localregistry.Gate:
			line += "containers start the approved digests of " + tags
		default:
			line += "ready for " + tags
		}
		if r.LastServed != nil {
			line += "; last used at " + p.Past(*r.LastServed)
		}
		if r.AwaySince != nil {
			line += "; registry does not answer, last answer at " + p.Past(*r.AwaySince)
		}
		if len(r.Unanswered) > 0 {
			line += "; " + terminal.Plural(len(r.Unanswered), "tag") + " not served"
		}
		lines = append(lines, line)
	}
	for _, l := range own.Lost {
		lines = append(lines, "lost: "+string(l.Wanted)+" on "+l.Registry+": "+terminal.OneLine(l.Reason))
	}
	if own.WantedError != "" {
		lines = append(lines, "cannot tell which registries it was enabled for: "+terminal.OneLine(own.WantedError))
	}
	if own.Down != "" {
		lines = append(lines, "does not answer, so containers need the registry to start: "+terminal.OneLine(own.Down))
	}
	if own.Error != "" {
		lines = append(lines, "not up to date: "+terminal.OneLine(own.Error))
	}
	return lines
}

// localRegistryLeft lists the followed tags that the local registry does not answer.
func (p *page) localRegistryLeft() {
	if p.s.LocalRegistry == nil {
		return
	}
	p.Section("Not served by the local registry:")
	for _, r := range p.s.LocalRegistry.Registries {
		for _, left := range r.Unanswered {
			p.Item("  "+status.LastPart(left.Image)+":"+left.Tag+": ", terminal.OneLine(left.Reason))
		}
	}
}

// catalogLine is the verified catalog in one sentence.
func (p *page) catalogLine(c catalog.Status) string {
	if c.Version == 0 {
		return c.Catalog + ": no version was verified yet" + because(c.Error)
	}
	line := fmt.Sprintf("%s version %d", c.Catalog, c.Version)
	switch {
	case c.Expired:
		line += ", expired at " + p.Past(*c.Expires)
	case c.Expires != nil:
		line += ", expires at " + p.Next(*c.Expires)
	}
	bound := 0
	for _, i := range p.s.Images {
		if i.Bound {
			bound++
		}
	}
	if bound > 0 {
		line += "; " + terminal.Plural(bound, "container") + " bound to its digests"
	}
	return line + because(c.Error)
}

func because(err string) string {
	if err == "" {
		return ""
	}
	return "; no newer version: " + terminal.OneLine(err)
}

// withdrawn lists the releases that run although the catalog has withdrawn them.
func (p *page) withdrawn() {
	p.Section("Running but withdrawn:")
	for _, i := range p.s.Images {
		w := i.Withdrawn
		if w == nil {
			continue
		}
		release := imageName(i)
		if i.Running != nil {
			release += " " + name(i.Running)
		}
		p.Item("  "+fileOf(i)+": ", release+": "+terminal.OneLine(w.Reason))
		switch {
		case i.Offered != nil:
			p.Item("    instead  ", name(i.Offered)+" is offered")
		case w.To != "":
			p.Item("    instead  ", terminal.OneLine(w.To)+
				" is not offered to this node (a lower release needs catalog.allowLower)")
		}
	}
}
