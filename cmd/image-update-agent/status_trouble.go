// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/kubic-project/image-update-agent/agent"
)

// trouble lists what stands in the way, each once and with what ends it.
func (p *page) trouble(s agent.Status) {
	p.errors(s)
	p.unstaged(s)
	p.down(s.Images)
	p.rolledBack(s)
	p.holds(s)
	p.waitedFor(s)
	p.notAllowed(s)
	p.sources(s.Sources)
	p.notes(s)
}

// section begins a part of the page, before its first entry.
func (p *page) section(title string) func() {
	begun := false
	return func() {
		if !begun {
			begun = true
			p.line("\n" + title)
		}
	}
}

// errors are those of pod manifests, as far as the head has not said them.
func (p *page) errors(s agent.Status) {
	begin := p.section("Did not work:")
	for _, pod := range s.PodManifests {
		if pod.Error != "" && !strings.Contains(p.reason(s), pod.Error) {
			begin()
			p.item("  "+pod.PodManifest+": ", pod.Error)
		}
	}
}

// unstaged lists what could not be staged, and when that is tried again.
func (p *page) unstaged(s agent.Status) {
	begin := p.section("Not staged:")
	once(s, func(i agent.ImageStatus) {
		if i.RetryAt == nil || p.away {
			return
		}
		begin()
		release := path.Base(i.Image)
		if i.Offered != nil {
			release += " " + name(i.Offered)
		}
		p.item("  "+cmp.Or(i.PodManifest, "(configuration)")+": ", release+": tried again at "+p.at(*i.RetryAt))
	})
}

// down lists the containers that do not run.
func (p *page) down(images []agent.ImageStatus) {
	begin := p.section("Does not run:")
	for _, i := range images {
		if i.Down == nil {
			continue
		}
		begin()
		p.item("  ", i.PodManifest+": "+i.Container+" "+oneLine(i.Down.String()))
		p.item("    since    ", p.clock(i.Down.Since)+" ("+ago(p.now.Sub(i.Down.Since))+")")
		if i.LastGood != nil {
			p.item("    ran well ", name(i.LastGood))
		}
	}
}

// rolledBack are the pods that a person has brought back, and how to go forward again.
func (p *page) rolledBack(s agent.Status) {
	begin := p.section("Rolled back by hand:")
	for _, pod := range s.PodManifests {
		b := pod.RolledBack
		if b == nil || !b.ByHand {
			continue
		}
		begin()
		left, runs := oneLine(strings.Join(b.Left, ", ")), oneLine(strings.Join(b.Runs, ", "))
		p.item("  "+pod.PodManifest+": ", "left "+left+", runs "+runs)
		p.item("    since    ", p.clock(b.At)+" ("+ago(p.now.Sub(b.At))+")")
		p.item("    forward  ", "image-update-agent apply --retry "+pod.PodManifest+"; or wait for a newer release")
	}
}

// held is a hold with what it holds.
type held struct {
	agent.Hold
	of []string
}

// holdsOf are all holds, those of one reason together. What is nobody's to change
// comes last: that is so on every node with a control plane.
func holdsOf(s agent.Status) []held {
	var all []held
	add := func(of string, holds []agent.Hold) {
		for _, h := range holds {
			n := slices.IndexFunc(all, func(o held) bool { return o.Hold == h })
			if n < 0 {
				n = len(all)
				all = append(all, held{Hold: h})
			}
			if !slices.Contains(all[n].of, of) {
				all[n].of = append(all[n].of, of)
			}
		}
	}
	for _, pod := range s.PodManifests {
		add(pod.PodManifest, pod.Holds)
	}
	for _, i := range s.Images {
		if i.PodManifest == "" {
			add(i.Image, i.Holds)
		}
	}
	slices.SortStableFunc(all, func(x, y held) int {
		return cmp.Compare(rank(x.Name == agent.HoldUnmanaged), rank(y.Name == agent.HoldUnmanaged))
	})
	return all
}

func rank(last bool) int {
	if last {
		return 1
	}
	return 0
}

// holdBacks are the holds that keep something from being applied. That a pod manifest
// is nobody's to change is one only where it has something newer, and nothing else holds.
func holdBacks(s agent.Status) []held {
	unmanaged := func(h held) bool { return h.Name == agent.HoldUnmanaged }
	if others := slices.DeleteFunc(holdsOf(s), unmanaged); len(others) > 0 {
		return others
	}
	return slices.DeleteFunc(holdsOf(s), func(h held) bool {
		return !slices.ContainsFunc(s.PodManifests, func(p agent.PodStatus) bool {
			return p.Change != "" && slices.Contains(h.of, p.PodManifest)
		})
	})
}

func (p *page) holds(s agent.Status) {
	begin := p.section("Held back:")
	said := s.State == agent.StateHeld && len(holdBacks(s)) == 1
	for _, h := range holdsOf(s) {
		if said && h.Hold == holdBacks(s)[0].Hold {
			continue
		}
		begin()
		p.item("  "+h.Name+": ", h.Reason)
		p.item("    of       ", strings.Join(h.of, ", "))
		if cure := remedyFor(h.Hold); cure != "" {
			p.item("    remedy   ", cure)
		}
	}
}

// outage is the sources that fail for one reason, which often is their host's.
type outage struct {
	cause        string
	repositories []string
	failures     int        // the most of one
	last         *time.Time // the oldest; nil: one has never answered
	retry        *time.Time // the earliest
}

func silentSources(all []agent.SourceStatus) int {
	n := 0
	for _, r := range all {
		if r.Failures > 0 {
			n++
		}
	}
	return n
}

// resting is what stands before a cause where a host was not asked once more.
var resting = regexp.MustCompile(`left alone until \S+: `)

// silence groups the sources that fail.
func silence(all []agent.SourceStatus) []outage {
	var out []outage
	for _, r := range all {
		if r.Failures == 0 {
			continue
		}
		cause := cmp.Or(resting.ReplaceAllString(strings.TrimPrefix(r.Error, r.Repository+": "), ""), "no answer")
		n := slices.IndexFunc(out, func(s outage) bool { return s.cause == cause })
		if n < 0 {
			n = len(out)
			out = append(out, outage{cause: cause, last: r.LastSuccess, retry: r.RetryAt})
		}
		s := &out[n]
		s.repositories = append(s.repositories, r.Repository)
		s.failures = max(s.failures, r.Failures)
		if r.LastSuccess == nil || s.last != nil && r.LastSuccess.Before(*s.last) {
			s.last = r.LastSuccess
		}
		if s.retry == nil || r.RetryAt != nil && r.RetryAt.Before(*s.retry) {
			s.retry = r.RetryAt
		}
	}
	return out
}

func (p *page) sources(all []agent.SourceStatus) {
	begin := p.section("No answer:")
	for _, s := range silence(all) {
		begin()
		p.item("  ", s.cause)
		p.item("    for      ", few(s.repositories))
		last := "never"
		if s.last != nil {
			last = ago(p.now.Sub(*s.last))
		}
		p.item("    since    ", fmt.Sprintf("%s in a row; last answered %s", plural(s.failures, "failure"), last))
		if s.retry != nil && !p.away {
			p.item("    next try ", p.at(*s.retry))
		}
	}
	insecure := p.section("Without verified TLS:")
	for _, r := range all {
		if r.Insecure {
			insecure()
			p.item("  ", r.Host+" answers for "+r.Repository)
		}
	}
}

func (p *page) at(t time.Time) string {
	if !t.After(p.now) {
		return p.clock(t) + " (due)"
	}
	return p.clock(t) + " (in " + span(t.Sub(p.now)) + ")"
}

// notes lists what else there is to say; containers of one pod often have the same.
func (p *page) notes(s agent.Status) {
	begin := p.section("Notes:")
	seen := map[string]bool{}
	write := func(file, text string) {
		label := "  " + cmp.Or(file, "(configuration)") + ": "
		if text != "" && !seen[label+text] {
			seen[label+text] = true
			begin()
			p.item(label, text)
		}
	}
	for _, pod := range s.PodManifests {
		for _, e := range pod.Edits {
			if e.Field == agent.EditPullPolicy {
				write(pod.PodManifest, "an apply changes the "+editText(e))
			}
		}
		for _, l := range pod.Left {
			write(pod.PodManifest, fmt.Sprintf("line %d: left alone: %s (%s)", l.Line, printable(l.Reference), l.Reason))
		}
	}
	for _, i := range s.Images {
		if !alreadySaid(s, i.Error) {
			write(i.PodManifest, i.Error)
		}
		for _, n := range i.Notes {
			write(i.PodManifest, n)
		}
	}
}

// alreadySaid reports that an error stands on the page as a source's, or in the
// reason of the state.
func alreadySaid(s agent.Status, text string) bool {
	return s.State == agent.StateFailed && strings.Contains(s.Reason, text) ||
		slices.ContainsFunc(s.Sources, func(r agent.SourceStatus) bool { return r.Failures > 0 && r.Error == text })
}
