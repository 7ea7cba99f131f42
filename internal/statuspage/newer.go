// SPDX-License-Identifier: Apache-2.0

package statuspage

import (
	"fmt"
	"path"

	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/status"
)

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
		return "wait for a higher release; or catalog.allowLower: true offers this one"
	}
	switch no.Rule {
	case policy.RuleSignature:
		return "its publisher signs it with a key of `signatureKeys`; image-update-agent check tries at once"
	case policy.RuleOlder:
		return "none is needed where the release was withdrawn; " + no.Key + " follows the tag"
	case policy.RulePublishing:
		return "wait: its floating tag follows, or it was withdrawn"
	}
	return ""
}

// waitedFor lists what is newer and is not offered yet.
func (p *page) waitedFor() {
	begin := p.Section("Waited for:")
	once(p.s, func(i status.ImageStatus) {
		for _, no := range i.Refused {
			if no.Holds {
				begin()
				p.Item("  "+no.Rule+": ", path.Base(i.Image)+" "+no.Tag+": "+no.Reason)
				p.Item("    remedy   ", remedyForWaiting(i, no))
			}
		}
	})
}

// notAllowed lists what the configuration keeps from being offered, and what is
// only watched for rebuilds, with what would change it.
func (p *page) notAllowed() {
	begin := p.Section("Newer, not allowed:")
	once(p.s, func(i status.ImageStatus) {
		for _, no := range i.NotAllowed {
			begin()
			p.Item("  "+path.Base(i.Image)+" "+no.Tag+": ", no.Rule+": "+no.Reason)
			p.Item("    allow    ", allowing(no))
		}
	})
	begin = p.Section("Rebuilds only:")
	once(p.s, func(i status.ImageStatus) {
		if i.RebuildsOnly != nil {
			begin()
			p.Item("  "+path.Base(i.Image)+" "+i.RebuildsOnly.Tag+": ", "the tag is not understood, so nothing is newer than it")
			p.Item("    instead  ", understood(*i.RebuildsOnly))
		}
	})
}

// allowing is what to write under the image's `match`.
func allowing(no policy.Refusal) string {
	switch no.Rule {
	case policy.RuleDeny:
		return "take the pattern out of its `deny`"
	case policy.RuleKubeadm:
		return "kubeadm upgrade; or add " + no.Tag + " to its `allow`"
	case policy.RuleAllow:
		return "add " + no.Tag + " to its `allow`"
	default:
		return no.Key
	}
}

func understood(r status.RebuildsOnly) string {
	switch {
	case r.Dialect != "":
		return "dialect: " + r.Dialect
	case r.Follow != "":
		return "follow: " + r.Follow + ", where the repository has it"
	default:
		return "a tag of the same image with a version that is understood, under `follow`"
	}
}
