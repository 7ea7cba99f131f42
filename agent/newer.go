// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"regexp"
	"slices"
	"strings"

	"github.com/kubic-project/image-update-agent/tags"
)

// NotAllowed is something newer that the configuration keeps from being offered.
type NotAllowed struct {
	Image string `json:"image"` // repository
	Tag   string `json:"tag"`
	Rule  string `json:"rule"` // updates, max, allow, deny or kubeadm
	Key   string `json:"key"`  // what would allow it there, as in "updates: minor"
}

// RebuildsOnly is a followed tag that is not understood, so that nothing can be
// newer than it: it is only watched for another digest.
type RebuildsOnly struct {
	Tag string `json:"tag"`
	// Dialect is the `dialect` that reads the tag; empty: none does.
	Dialect string `json:"dialect,omitempty"`
	// Follow is the part of the tag that is understood, to be written under `follow`
	// where the repository has it; empty: there is none.
	Follow string `json:"follow,omitempty"`
}

// version is what a tag begins with that goes on as nobody's scheme does.
var version = regexp.MustCompile(`^v?[0-9]+(\.[0-9]+)+`)

// rebuildsOnly tells a tag that the rule's dialect does not read, and what would
// help. nil: it reads it.
func rebuildsOnly(tag string, rule Rule) *RebuildsOnly {
	if _, err := rule.Dialect.Parse(tag); err == nil || tag == "" {
		return nil
	}
	only := &RebuildsOnly{Tag: tag}
	for _, d := range []tags.Dialect{tags.Core, tags.Hyphen, tags.HyphenDash, tags.ShortB} {
		if _, err := d.Parse(tag); err == nil {
			only.Dialect = d.String()
			return only
		}
	}
	if part := version.FindString(tag); part != "" {
		if _, err := rule.Dialect.Parse(part); err == nil {
			only.Follow = part
		}
	}
	return only
}

// notAllowed are the refusals of the configuration's rules, the highest for each
// setting that would allow it.
func notAllowed(refused []Refusal) []Refusal {
	var out []Refusal
	for _, no := range refused {
		byRule := slices.Contains([]string{RuleUpdates, RuleMax, RuleAllow, RuleDeny, RuleKubeadm}, no.Rule)
		if byRule && !slices.ContainsFunc(out, func(o Refusal) bool { return o.key() == no.key() }) {
			out = append(out, no)
		}
	}
	return out
}

// key is the setting that would allow what is refused, whatever the tag is.
func (r Refusal) key() string {
	if r.Rule == RuleUpdates {
		return r.Key
	}
	return r.Rule
}

// images are those of all pods and of the configuration, with the pod manifest.
func (p Plan) images(f func(file string, i ImagePlan)) {
	for _, pod := range p.Pods {
		for _, i := range pod.Images {
			if i.Want.Ask.Repository != "" {
				f(pod.File, i)
			}
		}
	}
	for _, i := range p.Tracked {
		f("", i)
	}
}

// notAllowed is what the node could have if it were allowed, each once, sorted.
func (p Plan) notAllowed() []NotAllowed {
	out := []NotAllowed{}
	p.images(func(_ string, i ImagePlan) {
		for _, no := range i.NotAllowed {
			out = append(out, NotAllowed{i.Offer.Repository, no.Tag, no.Rule, no.Key})
		}
	})
	slices.SortFunc(out, func(x, y NotAllowed) int {
		return strings.Compare(x.Image+" "+x.Key+" "+x.Tag, y.Image+" "+y.Key+" "+y.Tag)
	})
	return slices.Compact(out)
}

// waitedFor is what is newer and is only waited for, and why.
func (p Plan) waitedFor() []Reason {
	var out []Reason
	p.images(func(file string, i ImagePlan) {
		for _, no := range i.Offer.Refused {
			if no.Holds {
				r := Reason{
					Kind: KindAwait, PodManifest: file, Image: i.Offer.Repository, Tag: no.Tag, Rule: no.Rule, Since: no.Since,
					RetryAt: no.RetryAt, Text: no.Rule + ": " + i.Offer.Repository + ":" + no.Tag + ": " + no.Reason,
				}
				if file != "" {
					r.Text = file + ": " + r.Text
				}
				out = append(out, r)
			}
		}
	})
	return out
}

// maxNamed bounds what one sentence names.
const maxNamed = 3

// nothingToDo is why nothing is offered on a node that is current.
func (p Plan) nothingToDo(rec *Record) []Reason {
	var back, newer, only []Reason
	for _, pod := range p.Pods {
		if b := rec.rolledBack(pod.File); b != nil {
			back = append(back, Reason{Kind: KindRolledBack, PodManifest: pod.File, Since: b.At, Text: b.reason(pod.File)})
		}
	}
	for _, n := range p.notAllowed() {
		newer = append(newer, listed(Reason{Kind: KindNotAllowed, Image: n.Image, Tag: n.Tag, Rule: n.Rule}))
	}
	p.images(func(_ string, i ImagePlan) {
		if i.RebuildsOnly != nil {
			only = append(only, listed(Reason{Kind: KindRebuildsOnly, Image: i.Offer.Repository, Tag: i.RebuildsOnly.Tag}))
		}
	})
	why := slices.Concat(back, newer, sorted(only))
	if len(why) == 0 {
		return []Reason{{Kind: KindNone, Text: "every followed image is the newest that policy allows"}}
	}
	return append([]Reason{{Kind: KindNone, Text: "nothing to apply"}}, why...)
}

func few(names []string) string {
	if len(names) > maxNamed {
		names = append(slices.Clone(names[:maxNamed]), "and more")
	}
	return strings.Join(names, ", ")
}

func lastPart(repository string) string { return repository[strings.LastIndex(repository, "/")+1:] }
