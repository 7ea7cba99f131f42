// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/manifests"
	"github.com/kubic-project/image-update-agent/tags"
)

// Running returns the running digests of each question's images. Two containers of one tag may run different digests.
func Running(inv node.Inventory, views []PodView) map[release.Question][]digest.Digest {
	var names []string
	for _, v := range views {
		if v.Err == nil {
			names = append(names, v.Pod.Name)
		}
	}
	out, pods, held := map[release.Question][]digest.Digest{}, inv.ByPod(names), inv.Index()
	for _, v := range views {
		if v.Err != nil {
			continue
		}
		containers := pods.Containers(v.Pod.Namespace, v.Pod.Name)
		for _, w := range v.Wants {
			if c := node.FindContainer(containers, w.Image.Container); c != nil && node.IsContainer(w.Image) && c.Image != "" {
				out[w.Ask] = append(out[w.Ask], held.DigestOf(c))
			}
		}
	}
	return out
}

// question sets the question of an image reference.
func (w *Want) question(p policy.Policy, managed bool) error {
	if !node.Pulled(w.Image) {
		w.Untouched = w.Image.Reason
		return nil
	}
	ref := manifests.SplitReference(w.Image.Reference)
	editable := managed && w.Image.Editable
	name := ref.Name
	if editable {
		name = manifests.Rewritten(ref.Name, p.Rewrites)
	}
	repository, err := release.NormalizeRepository(name)
	if err != nil {
		return err
	}
	tag := ref.Tag
	switch {
	case release.IsPlaceholder(tag):
		tag = p.Value(ref.Name, name, repository)
	case tag == "":
		tag = "latest" // kubelet's default
	}
	rule := p.RuleFor(repository)
	switch {
	case editable && rule.Follow != "":
		tag = rule.Follow
	case w.OnDisk.Repository == repository && !release.IsPlaceholder(w.OnDisk.Tag):
		tag = Higher(tag, w.OnDisk.Tag, rule.Scheme)
	}
	if !editable {
		w.Untouched = w.Image.Reason
	}
	w.Ask = release.Question{Repository: repository, Tag: tag, Convert: editable}
	return nil
}

// Higher returns the higher of two tags: the one on disk after an apply, the template's after an OS update. If they
// cannot be compared, it returns the template's.
func Higher(template, disk string, s tags.Scheme) string {
	if template == "" {
		return disk
	}
	t, errT := s.Parse(template)
	k, errK := s.Parse(disk)
	if errT != nil || errK != nil || tags.ChangeBetween(t, k) == tags.Unrelated || tags.Compare(t, k) >= 0 {
		return template
	}
	return disk
}

// Questions returns the questions of all pods and of the configuration, sorted, without duplicates.
func Questions(views []PodView, p policy.Policy) []release.Question {
	var qs []release.Question
	for _, v := range views {
		for _, w := range v.Wants {
			if w.Ask.Repository != "" {
				qs = append(qs, w.Ask)
			}
		}
	}
	for _, r := range p.Images {
		qs = append(qs, release.Question{Repository: r.Repository, Tag: r.Tag})
	}
	slices.SortFunc(qs, func(a, b release.Question) int { return strings.Compare(a.String(), b.String()) })
	return slices.Compact(qs)
}

// BrokenTag is a tag of a pod manifest whose image record on the node is not an image: kubelet's pull got a login page,
// for example.
type BrokenTag struct {
	Record     node.HeldImage
	Repository string
	// Digest is the digest that the tag should name: the running one, or else the last known good one; empty if the
	// node has neither.
	Digest digest.Digest
}

// BrokenTags returns the tags of pod manifests with broken image records, each once. It never selects a denied digest.
func BrokenTags(inv node.Inventory, views []PodView, rec record.Record) []BrokenTag {
	broken := map[string]node.HeldImage{}
	for _, h := range inv.Held {
		if h.NotImage != "" && !h.Pin {
			broken[h.Name] = h
		}
	}
	if len(broken) == 0 {
		return nil
	}
	running, held := Running(inv, views), inv.Index()
	var out []BrokenTag
	for _, v := range views {
		for _, w := range v.Wants {
			h, is := broken[w.OnDisk.String()]
			if !is {
				continue
			}
			good := rec.Good[record.GoodKey(v.File, w.Image.Container)]
			usable := slices.DeleteFunc(append(slices.Clone(running[w.Ask]), good.Running), func(d digest.Digest) bool {
				_, denied := rec.Denied[release.Key(w.OnDisk.Repository, d)]
				return d == "" || denied || !held.Has(d) || good.Repository != "" && good.Repository != w.OnDisk.Repository
			})
			tag := BrokenTag{Record: h, Repository: w.OnDisk.Repository}
			if len(usable) > 0 {
				tag.Digest = usable[0]
			}
			out = append(out, tag)
			delete(broken, h.Name)
		}
	}
	return out
}
