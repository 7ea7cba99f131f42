// SPDX-License-Identifier: Apache-2.0

package statuspage

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/face/terminal"
)

// errors are those of pod manifests, as far as the head has not said them.
func (p *page) errors() {
	p.Section("Errors:")
	for _, pod := range p.s.PodManifests {
		isSaid := p.says(func(r status.Reason) bool { return r.PodManifest == pod.PodManifest && r.ErrorKind != "" })
		if pod.Error != "" && !isSaid {
			p.Item("  "+pod.PodManifest+": ", pod.Error)
		}
	}
}

// says reports whether the head says such a reason.
func (p *page) says(is func(status.Reason) bool) bool {
	_, whole := p.reason()
	return whole && slices.ContainsFunc(p.s.Reasons, is)
}

// unstaged lists what could not be staged, and when that is tried again.
func (p *page) unstaged() {
	p.Section("Not staged:")
	once(p.s, func(i status.ImageStatus) {
		if i.RetryAt == nil || p.away {
			return
		}
		release := path.Base(i.Image)
		if i.Offered != nil {
			release += " " + name(i.Offered)
		}
		p.Item("  "+fileOf(i)+": ", release+": next try at "+p.Next(*i.RetryAt))
	})
}

// down lists the containers that do not run.
func (p *page) down() {
	p.Section("Not running:")
	for _, i := range p.s.Images {
		if i.Down == nil {
			continue
		}
		p.Item("  ", i.PodManifest+": "+i.Container+" "+terminal.OneLine(i.Down.String()))
		p.Item("    since    ", p.Past(i.Down.Since))
		if i.LastKnownGood != nil {
			p.Item("    ran well ", name(i.LastKnownGood))
		}
	}
}

// rolledBack are the pods that a person has rolled back, and how to go forward again.
func (p *page) rolledBack() {
	p.Section("Rolled back by hand:")
	for _, pod := range p.s.PodManifests {
		b := pod.RolledBack
		if b == nil || !b.ByHand {
			continue
		}
		left, runs := terminal.OneLine(strings.Join(b.Denied, ", ")), terminal.OneLine(strings.Join(b.Runs, ", "))
		p.Item("  "+pod.PodManifest+": ", "from "+left+" to "+runs)
		p.Item("    since    ", p.Past(b.At))
		undo := "wait for a newer release"
		if canRetry(p.s, pod.PodManifest) {
			undo = "image-update-agent apply --retry " + pod.PodManifest + "; or " + undo
		}
		p.Item("    undo     ", undo)
	}
}

// held is a hold with what it holds.
type held struct {
	status.Hold
	of []string
}

// holdsOf are all holds, those of one reason together. Unmanaged ones come last: every
// node with a control plane has them.
func holdsOf(s status.Status) []held {
	var all []held
	add := func(of string, holds []status.Hold) {
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
		return cmp.Compare(rank(x.IsUnmanaged()), rank(y.IsUnmanaged()))
	})
	return all
}

func rank(last bool) int {
	if last {
		return 1
	}
	return 0
}

// holdBacks are the holds that the node is held by.
func holdBacks(s status.Status) []held {
	return slices.DeleteFunc(holdsOf(s), func(h held) bool {
		return !slices.ContainsFunc(s.Reasons, func(r status.Reason) bool {
			return r.Hold == h.Name && slices.Contains(h.of, cmp.Or(r.PodManifest, r.Image))
		})
	})
}

func (p *page) holds() {
	p.Section("Holds:")
	back := holdBacks(p.s)
	for _, h := range holdsOf(p.s) {
		if len(back) == 1 && h.Hold == back[0].Hold { // the head has it
			continue
		}
		p.Item("  "+h.Name+": ", h.Reason)
		p.Item("    for      ", strings.Join(h.of, ", "))
		if remedy := h.Explained().Remedy; remedy != "" {
			p.Item("    remedy   ", remedy)
		}
	}
}

// standingHolds are those that hold nothing yet; the others stand above.
func (p *page) standingHolds() {
	p.Section("Standing holds:")
	acting := holdsOf(p.s)
	for _, h := range p.s.StandingHolds {
		if slices.ContainsFunc(acting, func(o held) bool {
			return o.Name == h.Name && cmp.Or(o.Image, record.AllImages) == h.Repository && cmp.Or(o.By, h.By.Kind) == h.By.Kind
		}) {
			continue
		}
		of := h.Repository
		if of == record.AllImages {
			of = "every image"
		}
		p.Item("  "+h.Name+": ", cmp.Or(h.Reason, "no reason given"))
		p.Item("    for      ", of)
		since := ""
		if h.Since != nil {
			since = " at " + p.Past(*h.Since)
		}
		p.Item("    by       ", h.By.String()+since)
		if h.Until != nil {
			p.Item("    until    ", p.Next(*h.Until))
		}
		p.Item("    remedy   ", h.Explained().Remedy)
	}
}

// outage is the sources that fail for one reason, which often is their host's.
type outage struct {
	host, reason string
	repositories []string
	failures     int        // the most of one
	last         *time.Time // the oldest; nil: one has never answered
	retry        *time.Time // the earliest
}

// outages groups the sources that fail: by what their host said, and those that were not asked, as it had failed
// others, with these.
func outages(all []status.SourceStatus) []outage {
	all = slices.DeleteFunc(slices.Clone(all), func(r status.SourceStatus) bool { return r.Failures == 0 })
	slices.SortStableFunc(all, func(x, y status.SourceStatus) int {
		return cmp.Compare(rank(x.Cause == release.CauseUnasked), rank(y.Cause == release.CauseUnasked))
	})
	var out []outage
	for _, r := range all {
		n := slices.IndexFunc(out, func(o outage) bool {
			return o.reason == r.Reason || r.Cause == release.CauseUnasked && r.Host != "" && o.host == r.Host
		})
		if n < 0 {
			n = len(out)
			out = append(out, outage{host: r.Host, reason: r.Reason, last: r.LastSuccess, retry: r.RetryAt})
		}
		o := &out[n]
		o.repositories = append(o.repositories, r.Repository)
		o.failures = max(o.failures, r.Failures)
		if r.LastSuccess == nil || o.last != nil && r.LastSuccess.Before(*o.last) {
			o.last = r.LastSuccess
		}
		if o.retry == nil || r.RetryAt != nil && r.RetryAt.Before(*o.retry) {
			o.retry = r.RetryAt
		}
	}
	return out
}

func (p *page) sources() {
	p.Section("Not answering:")
	for _, s := range outages(p.s.Sources) {
		p.Item("  ", cmp.Or(s.reason, "no answer"))
		p.Item("    for      ", terminal.Few(s.repositories))
		last := "never"
		if s.last != nil {
			last = terminal.Ago(p.Now.Sub(*s.last))
		}
		p.Item("    since    ", fmt.Sprintf("%s in a row; last answer %s", terminal.Plural(s.failures, "failure"), last))
		if s.retry != nil && !p.away {
			p.Item("    next try ", p.Next(*s.retry))
		}
	}
	p.Section("Without verified TLS:")
	for _, r := range p.s.Sources {
		if r.Insecure {
			p.Item("  ", r.Host+" answers for "+r.Repository)
		}
	}
}

// notes lists what else there is to say; containers of one pod often have the same.
func (p *page) notes() {
	p.Section("Notes:")
	p.notesOfSources()
	seen := map[string]bool{}
	write := func(file, text string) {
		label := "  " + cmp.Or(file, "(configuration)") + ": "
		if text != "" && !seen[label+text] {
			seen[label+text] = true
			p.Item(label, text)
		}
	}
	for _, pod := range p.s.PodManifests {
		for _, e := range pod.Edits {
			if e.Field == status.EditPullPolicy {
				write(pod.PodManifest, "an apply changes the "+editText(e))
			}
		}
		for _, l := range pod.Untouched {
			write(pod.PodManifest, fmt.Sprintf("line %d: %s: %s", l.Line, terminal.Quoted(l.Name()), l.Text))
		}
	}
	for _, i := range p.s.Images {
		if !p.saysError(i) {
			write(i.PodManifest, i.Error)
		}
		for _, n := range i.Notes {
			write(i.PodManifest, n)
		}
	}
}

// notesOfSources lists the hosts that hosts.toml names and that did not answer.
func (p *page) notesOfSources() {
	for _, r := range p.s.Sources {
		if r.HostsIgnored != "" {
			p.Item("  ", r.Repository+": "+r.HostsIgnored+" (see doctor)")
		}
		if r.Skipped != "" {
			p.Item("  ", r.Repository+": "+r.Skipped+"; "+r.Host+" answered instead")
		}
	}
}

// saysError reports whether an image's error stands on the page as a source's, or in the head.
func (p *page) saysError(i status.ImageStatus) bool {
	return p.says(func(r status.Reason) bool { return r.Image == i.Image && r.ErrorKind == i.ErrorKind }) ||
		i.ErrorKind == status.ErrorSource && slices.ContainsFunc(p.s.Sources, func(r status.SourceStatus) bool {
			return r.Failures > 0 && r.Repository == i.Image
		})
}

// once calls f for each image of a status; containers of one pod often have the same.
func once(s status.Status, f func(i status.ImageStatus)) {
	seen := map[string]bool{}
	for _, i := range s.Images {
		key := i.PodManifest + " " + i.Image + " " + i.Follow + fmt.Sprint(i.Refused, i.NotAllowed)
		if !seen[key] {
			seen[key] = true
			f(i)
		}
	}
}

// remedyForWaiting is what ends the wait for something newer, by its rule.
func remedyForWaiting(i status.ImageStatus, no policy.Refusal) string {
	if no.Rule == policy.RuleOlder && i.Withdrawn != nil {
		return "wait for a higher release, or set catalog.allowLower: true to offer this one"
	}
	switch no.Rule {
	case policy.RuleSignature:
		return "the publisher must sign it with a key of `signatureKeys`; image-update-agent check tries again at once"
	case policy.RuleOlder:
		return "nothing to do if the release was withdrawn; to follow the tag, set " + no.Key
	case policy.RulePublishing:
		return "wait until the publisher moves the floating tag to it; the release may also have been withdrawn"
	}
	return ""
}

// waitedFor lists what is newer and is not offered yet.
func (p *page) waitedFor() {
	p.Section("Not offered yet:")
	once(p.s, func(i status.ImageStatus) {
		for _, no := range i.Refused {
			if no.Holds {
				p.Item("  "+no.Rule+": ", path.Base(i.Image)+" "+no.Tag+": "+no.Reason)
				p.Item("    remedy   ", remedyForWaiting(i, no))
			}
		}
	})
}

// notAllowed lists what the configuration keeps from being offered, and what is
// only watched for rebuilds, with what would change it.
func (p *page) notAllowed() {
	p.Section("Newer but not allowed:")
	once(p.s, func(i status.ImageStatus) {
		for _, no := range i.NotAllowed {
			p.Item("  "+path.Base(i.Image)+" "+no.Tag+": ", no.Rule+": "+no.Reason)
			p.Item("    allow    ", allowing(no))
		}
	})
	p.Section("Rebuilds only:")
	once(p.s, func(i status.ImageStatus) {
		if i.RebuildsOnly != nil {
			p.Item("  "+path.Base(i.Image)+" "+i.RebuildsOnly.Tag+": ", "the tag cannot be ordered: "+i.RebuildsOnly.Reason)
			p.Item("    instead  ", understood(*i.RebuildsOnly))
		}
	})
}

// allowing is what to write under the image's `match`.
func allowing(no policy.Refusal) string {
	switch no.Rule {
	case policy.RuleDeny:
		return "remove the pattern from its `deny`"
	case policy.RuleKubeadm:
		return "run kubeadm upgrade, or add " + no.Tag + " to its `allow`"
	case policy.RuleAllow:
		return "add " + no.Tag + " to its `allow`"
	default:
		return no.Key
	}
}

// understood is what to write under the image's `match`.
func understood(r status.RebuildsOnly) string {
	if r.Pattern != "" {
		return "tags: {pattern: '" + r.Pattern + "'}"
	}
	return "set `follow` to a tag of the same image that has a version"
}
