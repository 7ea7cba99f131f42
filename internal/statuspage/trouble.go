// SPDX-License-Identifier: Apache-2.0

package statuspage

import (
	"cmp"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/internal/terminal"
)

// errors are those of pod manifests, as far as the head has not said them.
func (p *page) errors() {
	begin := p.Section("Did not work:")
	for _, pod := range p.s.PodManifests {
		if pod.Error != "" && !strings.Contains(p.reason(), pod.Error) {
			begin()
			p.Item("  "+pod.PodManifest+": ", pod.Error)
		}
	}
}

// unstaged lists what could not be staged, and when that is tried again.
func (p *page) unstaged() {
	begin := p.Section("Not staged:")
	once(p.s, func(i agent.ImageStatus) {
		if i.RetryAt == nil || p.away {
			return
		}
		begin()
		release := path.Base(i.Image)
		if i.Offered != nil {
			release += " " + name(i.Offered)
		}
		p.Item("  "+fileOf(i)+": ", release+": tried again at "+p.Next(*i.RetryAt))
	})
}

// down lists the containers that do not run.
func (p *page) down() {
	begin := p.Section("Does not run:")
	for _, i := range p.s.Images {
		if i.Down == nil {
			continue
		}
		begin()
		p.Item("  ", i.PodManifest+": "+i.Container+" "+terminal.OneLine(i.Down.String()))
		p.Item("    since    ", p.Past(i.Down.Since))
		if i.LastGood != nil {
			p.Item("    ran well ", name(i.LastGood))
		}
	}
}

// rolledBack are the pods that a person has brought back, and how to go forward again.
func (p *page) rolledBack() {
	begin := p.Section("Rolled back by hand:")
	for _, pod := range p.s.PodManifests {
		b := pod.RolledBack
		if b == nil || !b.ByHand {
			continue
		}
		begin()
		left, runs := terminal.OneLine(strings.Join(b.Left, ", ")), terminal.OneLine(strings.Join(b.Runs, ", "))
		p.Item("  "+pod.PodManifest+": ", "left "+left+", runs "+runs)
		p.Item("    since    ", p.Past(b.At))
		p.Item("    forward  ", "image-update-agent apply --retry "+pod.PodManifest+"; or wait for a newer release")
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

func (p *page) holds() {
	begin := p.Section("Held back:")
	back := holdBacks(p.s)
	said := p.s.State == agent.StateHeld && len(back) == 1
	for _, h := range holdsOf(p.s) {
		if said && h.Hold == back[0].Hold {
			continue
		}
		begin()
		p.Item("  "+h.Name+": ", h.Reason)
		p.Item("    of       ", strings.Join(h.of, ", "))
		if cure := Remedy(h.Hold); cure != "" {
			p.Item("    remedy   ", cure)
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

func (p *page) sources() {
	begin := p.Section("No answer:")
	for _, s := range silence(p.s.Sources) {
		begin()
		p.Item("  ", s.cause)
		p.Item("    for      ", terminal.Few(s.repositories))
		last := "never"
		if s.last != nil {
			last = terminal.Ago(p.Now.Sub(*s.last))
		}
		p.Item("    since    ", fmt.Sprintf("%s in a row; last answered %s", terminal.Plural(s.failures, "failure"), last))
		if s.retry != nil && !p.away {
			p.Item("    next try ", p.Next(*s.retry))
		}
	}
	insecure := p.Section("Without verified TLS:")
	for _, r := range p.s.Sources {
		if r.Insecure {
			insecure()
			p.Item("  ", r.Host+" answers for "+r.Repository)
		}
	}
}

// notes lists what else there is to say; containers of one pod often have the same.
func (p *page) notes() {
	begin := p.Section("Notes:")
	seen := map[string]bool{}
	write := func(file, text string) {
		label := "  " + cmp.Or(file, "(configuration)") + ": "
		if text != "" && !seen[label+text] {
			seen[label+text] = true
			begin()
			p.Item(label, text)
		}
	}
	for _, pod := range p.s.PodManifests {
		for _, e := range pod.Edits {
			if e.Field == agent.EditPullPolicy {
				write(pod.PodManifest, "an apply changes the "+editText(e))
			}
		}
		for _, l := range pod.Left {
			write(pod.PodManifest, fmt.Sprintf("line %d: left alone: %s (%s)", l.Line, terminal.Quoted(l.Reference), l.Reason))
		}
	}
	for _, i := range p.s.Images {
		if !alreadySaid(p.s, i.Error) {
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
