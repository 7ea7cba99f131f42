// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/follow"
	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
	format "github.com/kubic-project/image-update-agent/internal/catalog"
	"github.com/kubic-project/image-update-agent/manifests"
	"github.com/kubic-project/image-update-agent/tags"
)

// addHolds adds the holds of people and of the configuration.
func (f *facts) addHolds(p *PodPlan) {
	if h, ok := f.rec.Holds[record.AllImages]; ok && f.rec.IsHeld(h, f.now) {
		f.addHold(p, record.AllImages, status.ByPerson, h.Reason, h.Until)
	}
	for _, i := range p.Images {
		repository := i.Want.Ask.Repository
		if h, ok := f.rec.Holds[repository]; ok && f.rec.IsHeld(h, f.now) {
			f.addHold(p, repository, status.ByPerson, h.Reason, h.Until)
		}
		rule := f.policy.RuleFor(repository)
		if rule.Hold != "" && f.rec.IsHeld(record.PersonHold{Until: rule.HoldUntil}, f.now) {
			f.addHold(p, repository, status.ByConfiguration, rule.Hold, rule.HoldUntil)
		}
	}
}

func (f *facts) addHold(p *PodPlan, image, by, reason string, until time.Time) {
	text := image
	if image == record.AllImages {
		text = "everything"
	}
	if reason != "" {
		text += ": " + reason
	}
	if by == status.ByConfiguration {
		text += " (configuration)"
	}
	if !until.IsZero() {
		text += ", until " + until.UTC().Format(time.RFC3339)
		if !f.now.Before(until) {
			text += " (kept, because the clock has jumped past it)"
		}
	}
	h := status.Hold{Name: status.HoldRequested, Reason: text, Until: until.UTC(), Image: image, By: by, Note: reason}
	if !slices.Contains(p.Holds, h) {
		p.Holds = append(p.Holds, h)
	}
}

// holdIfBusy adds a hold while another operation owns the node.
func (f *facts) holdIfBusy(p *PodPlan) {
	if f.inv.Busy != "" {
		p.Holds = append(p.Holds, status.Hold{Name: status.HoldBusy, Reason: f.inv.Busy, Grain: f.inv.BusyGrain})
	}
}

// shortage returns the disk space that a release lacks, by the size that its last pull reported.
func (f *facts) shortage(r release.Release) (*policy.ShortageError, bool) {
	n, is := f.inv.BlockedBySpace[release.Key(r.Repository, r.Digest)]
	if !is || f.held.Has(r.Digest) {
		return nil, false
	}
	return f.policy.Reserve.Shortage(f.inv.Filesystem, n, 0)
}

func (f *facts) lacksSpace(i ImagePlan) bool {
	_, is := f.shortage(i.Target)
	return is
}

// diskHolds returns a hold for images that lack disk space, and stores each shortage.
func (f *facts) diskHolds(images []ImagePlan) []status.Hold {
	var reasons []string
	for n, i := range images {
		if s, is := f.shortage(i.Target); is {
			images[n].Shortage = s
			reasons = append(reasons, release.FullName(i.Target)+": "+s.Error())
		}
	}
	if len(reasons) == 0 {
		return nil
	}
	return []status.Hold{{Name: status.HoldDisk, Reason: strings.Join(reasons, "; ")}}
}

// addWaits adds the delays of an apply: a freeze, and for mode auto the window, the control plane, a contradiction of
// names and times, and an earlier failure.
func (f *facts) addWaits(p *PodPlan) {
	if !f.rec.HasPassed(f.policy.Freeze, f.now) {
		until := f.policy.Freeze.UTC()
		p.Holds = append(p.Holds, status.Hold{
			Name: status.HoldFreeze, Reason: "no updates before " + until.Format(time.RFC3339), Until: until,
		})
	}
	if !f.policy.Auto || p.IsUnmanaged() {
		return
	}
	if open, change := f.policy.IsWindowOpen(f.now); !open {
		opens := change.UTC()
		p.Waits = append(p.Waits, status.Hold{
			Name: status.HoldWindow, Reason: "the next maintenance window opens at " + opens.Format(time.RFC3339), Until: opens,
		})
	}
	if f.rec.Lost != nil {
		p.Waits = append(p.Waits, status.Hold{Name: status.HoldRecord, Reason: f.rec.Lost.Reason})
	}
	if follow.IsControlPlane(p.Role) && !f.policy.Lock.Covers(true) {
		p.Waits = append(
			p.Waits, status.Hold{Name: status.HoldControlPlane, Reason: p.Pod + " is applied by hand, node by node"},
		)
	}
	for _, i := range p.Images {
		if i.Change != "" && i.Contradiction != "" {
			p.Waits = append(p.Waits, status.Hold{
				Name: status.HoldContradiction, Image: i.Target.Repository, Reason: i.Contradiction,
			})
		}
	}
	p.Waits = append(p.Waits, f.waitsForLock(p)...)
	if failure, failed := f.rec.Failed[p.File]; failed && failure.Offer == p.ID {
		p.Waits = append(p.Waits, status.Hold{Name: status.HoldFailed, Reason: failure.Reason})
	}
}

// waitsForLock returns the hold of a pod that waits for the fleet lock.
func (f *facts) waitsForLock(p *PodPlan) []status.Hold {
	if reason, waits := f.rec.Lock.Hold(p.File, f.now); waits {
		return []status.Hold{{Name: status.HoldLock, Reason: reason}}
	}
	return nil
}

// skew makes a client of the API server wait in mode auto if its minor version would be
// higher. A person may apply both.
func (f *facts) skew(pods []PodPlan) {
	at := slices.IndexFunc(pods, func(p PodPlan) bool { return p.Role == manifests.RoleAPIServer })
	if at < 0 || !f.policy.Auto {
		return
	}
	for n := range pods {
		client := &pods[n]
		if IsClient(client.Role) && !client.IsOwned() && client.Change != "" && f.isAhead(client, &pods[at]) {
			client.Waits = append(client.Waits, status.Hold{
				Name:   status.HoldControlPlane,
				Reason: client.Pod + " must not be newer than " + pods[at].Pod + ", which must be updated first",
			})
		}
	}
}

// isAhead reports whether the client's target has a higher minor version than the running API
// server.
func (f *facts) isAhead(client, server *PodPlan) bool {
	to, from := component(client), component(server)
	if to == nil || from == nil {
		return false
	}
	is, errIs := f.policy.RuleFor(from.Want.Ask.Repository).Scheme.Parse(from.Want.OnDisk.Tag)
	next, errNext := f.policy.RuleFor(to.Want.Ask.Repository).Scheme.Parse(to.Target.Tag)
	return errIs == nil && errNext == nil && tags.ChangeBetween(is, next) >= tags.Minor
}

// component returns the image of a control-plane pod's own program; nil if there is none.
func component(p *PodPlan) *ImagePlan {
	n := slices.IndexFunc(p.Images, func(i ImagePlan) bool {
		return i.Want.Image.Container == p.Role || status.LastPart(i.Want.Ask.Repository) == p.Role
	})
	if n < 0 && len(p.Images) == 1 {
		n = 0
	}
	if n < 0 {
		return nil
	}
	return &p.Images[n]
}

// IsClient reports whether pods of a role must not be newer than the API server.
func IsClient(role string) bool {
	return role == manifests.RoleControllerManager || role == manifests.RoleScheduler
}

// inOrder sorts restarts: by the configured order, then by name, the control plane last. If kube-apiserver changes its
// minor version, its clients follow it (Kubernetes' version skew policy).
func inOrder(p policy.Policy, applies []Step) {
	skews := slices.ContainsFunc(applies, func(s Step) bool {
		return s.Apply.Role == manifests.RoleAPIServer && policy.IsMinor(s.Apply.Change)
	})
	rank := func(s Step) int {
		switch role := s.Apply.Role; {
		case role == manifests.RoleAPIServer:
			return len(p.Order) + 1
		case IsClient(role) && skews:
			return len(p.Order) + 2
		case role == manifests.RoleEtcd:
			return len(p.Order) + 3
		}
		at := slices.IndexFunc(p.Order, func(pattern string) bool {
			ok, err := path.Match(pattern, s.File)
			return ok && err == nil // config validates the patterns
		})
		if at < 0 {
			at = len(p.Order)
		}
		return at
	}
	urgency := map[Verb]int{StepRollBack: 0, StepApply: 1, StepVerify: 2} // a health check changes nothing and can wait
	slices.SortStableFunc(applies, func(a, b Step) int {
		return cmp.Or(cmp.Compare(urgency[a.Do], urgency[b.Do]), cmp.Compare(rank(a), rank(b)), cmp.Compare(a.File, b.File))
	})
}

// refuses returns why a release is not offered, independent of the running one.
func (f *facts) refuses(rel release.Release, rule policy.Rule) (policy.Refusal, bool) {
	if no, refused := f.policy.RefusesListed(f.inv.Catalog, rel); refused {
		return no, true
	}
	return f.rec.Refuses(rel, rule)
}

// binds reports whether the wanted pod manifest has the target's digest next to its tag, so that kubelet does not start
// a release that the publisher has not promoted. A bound pod stays bound without the catalog.
func (f *facts) binds(v follow.PodView, i ImagePlan) bool {
	_, isBound := v.Bound[node.PlaceOf(i.Want.Image)]
	return v.Managed && i.Want.Ask.Convert && node.IsContainer(i.Want.Image) && i.Want.Image.Document == 0 &&
		i.Target.Digest != "" && !f.isPinned(v, i) && i.Want.PullPolicy != node.PullNever &&
		(isBound || f.inv.Catalog.IsListed(i.Target.Repository))
}

// bound returns the digests in the wanted pod manifest that the catalog lists, by place.
func (p *PodPlan) bound() map[string]digest.Digest {
	out := map[string]digest.Digest{}
	for _, i := range p.Images {
		if i.Bound {
			out[node.PlaceOf(i.Want.Image)] = i.Target.Digest
		}
	}
	return out
}

// bind puts the digests of listed releases into a rendered pod manifest.
func bind(p *PodPlan, file *manifests.File) (*manifests.File, error) {
	pins := map[string][]manifests.Pinned{}
	for _, i := range p.Images {
		if !i.Bound {
			continue
		}
		reference := release.Reference{Repository: i.Target.Repository, Tag: i.Target.Tag}
		pins[i.Want.PullPolicy] = append(pins[i.Want.PullPolicy], manifests.Pinned{
			Kind: i.Want.Image.Kind, Container: i.Want.Image.Container,
			Reference: reference.String() + "@" + i.Target.Digest.String(),
		})
	}
	for _, pullPolicy := range []string{manifests.PullAlways, manifests.PullIfNotPresent} {
		if len(pins[pullPolicy]) == 0 {
			continue
		}
		var err error
		if file, err = file.Pin(pins[pullPolicy], pullPolicy); err != nil {
			return nil, err
		}
	}
	return file, nil
}

// addCatalogWaits delays automatic applies while the catalog has expired, and until the node's time in a rollout.
func (f *facts) addCatalogWaits(p *PodPlan) {
	l := f.inv.Catalog
	follows := slices.ContainsFunc(p.Images, func(i ImagePlan) bool { return l.IsListed(i.Target.Repository) })
	if follows && l.IsExpired(f.now) && !f.policy.Catalog.IgnoreExpiry {
		p.Waits = append(p.Waits, status.Hold{
			Name: status.HoldCatalog, Reason: l.Catalog + " expired at " + l.Expires.UTC().Format(time.RFC3339),
		})
	}
	for _, i := range p.Images {
		is, listed := l.Find(i.Target.Repository, i.Target.Digest)
		if at := f.policy.Catalog.RolloutTime(is); listed && i.Change != "" && f.now.Before(at) {
			p.Waits = append(p.Waits, rolloutHold(i.Target.Repository, is, at.UTC()))
		}
	}
}

// addSeverityWait leaves to a person what the catalog does not call severe enough. What it does not tell is not severe.
func (f *facts) addSeverityWait(p *PodPlan) {
	least := f.policy.MinSeverity
	has := p.Brings().Severity
	if least == "" || has.Compare(least) >= 0 {
		return
	}
	p.Waits = append(p.Waits, status.Hold{
		Name: status.HoldSeverity,
		Reason: fmt.Sprintf("its severity is %s, and mode auto applies only updates from %s (apply.minSeverity)",
			cmp.Or(has, "not known"), least),
	})
}

// Brings returns what all changes of the pod bring in total.
func (p *PodPlan) Brings() format.Brought {
	var out format.Brought
	for _, i := range p.Images {
		out = out.With(i.Brings)
	}
	return out
}

// rolloutHold returns the hold on a release whose rollout reaches this node at a time. A paused rollout has no time.
func rolloutHold(repository string, is format.Release, at time.Time) status.Hold {
	h := status.Hold{Name: status.HoldRollout, Image: repository}
	if is.IsPaused() {
		h.Reason = "the publisher paused the rollout of " + is.Tag
		return h
	}
	h.Until, h.Reason = at, fmt.Sprintf("%s rolls out to this node at %s", is.Tag, at.Format(time.RFC3339))
	return h
}
