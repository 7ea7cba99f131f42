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
	begin := p.Section("Not offered yet:")
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
	begin := p.Section("Newer but not allowed:")
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
