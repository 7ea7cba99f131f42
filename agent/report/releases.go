// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// Releases returns the state of each release that the node runs, is offered, or has denied; sorted.
func (r *Report) Releases(pl plan.Plan) []status.ReleaseStatus {
	all := releases{}
	followed := map[string]bool{}
	for _, p := range pl.Pods {
		for _, i := range p.Images {
			repository := i.Want.Ask.Repository
			if repository == "" {
				continue
			}
			followed[repository] = true
			if is := r.shouldRun(p, i); is.Digest != "" {
				all.add(repository, is, r.runningState(p, i))
			}
			if i.Change != "" && i.Target.Digest != "" && !p.BlocksOffer() {
				all.add(repository, status.Named{Tag: i.Target.Name(), Digest: i.Target.Digest}, r.offeredState(p, i))
			}
		}
	}
	for key, d := range r.Record.Denied {
		if repository, of, _ := strings.Cut(key, "@"); followed[repository] && !d.Past {
			all.add(repository, status.Named{Tag: d.Name, Digest: digest.Digest(of)}, status.ReleaseFailed)
		}
	}
	out := append([]status.ReleaseStatus{}, slices.Collect(maps.Values(all))...)
	slices.SortFunc(out, func(a, b status.ReleaseStatus) int {
		return cmp.Or(cmp.Compare(a.Image, b.Image), cmp.Compare(a.Digest, b.Digest))
	})
	return out
}

// releases are the states by "repository@digest".
type releases map[string]status.ReleaseStatus

func (all releases) add(repository string, of status.Named, state status.ReleaseState) {
	key := release.Key(repository, of.Digest)
	was, is := all[key]
	if order := status.ReleaseStates(); is && slices.Index(order, was.State) <= slices.Index(order, state) {
		state = was.State
	}
	all[key] = status.ReleaseStatus{
		Image: repository, Tag: cmp.Or(was.Tag, of.Tag), Digest: of.Digest, State: state,
	}
}

// shouldRun returns the running release of a container. If there is no container, that is the one that kubelet must
// start: of the pod manifest, or, before an update, the last known good one.
func (r *Report) shouldRun(p plan.PodPlan, i plan.ImagePlan) status.Named {
	switch {
	case i.Running.Digest != "" || i.Down == nil:
		return i.Running
	case i.Change == "":
		return status.Named{Tag: i.Target.Name(), Digest: i.Target.Digest}
	default:
		good := r.Record.Good[record.GoodKey(p.File, i.Want.Image.Container)]
		return status.Named{
			Tag: r.Record.Releases[release.Key(good.Repository, good.Running)].Name(), Digest: good.Running,
		}
	}
}

func (r *Report) runningState(p plan.PodPlan, i plan.ImagePlan) status.ReleaseState {
	f, hasFailed := r.Record.Failed[p.File]
	switch {
	case hasFailed && (f.Running != "" || i.Change == "" && f.Offer == p.ID), i.Down != nil && !i.Down.Starting:
		return status.ReleaseFailed
	case i.Down != nil, r.isUnverified(p.File, i):
		return status.ReleaseStarting
	default:
		return status.ReleaseRunning
	}
}

// isUnverified reports whether a container runs a release that has not passed its health check.
func (r *Report) isUnverified(file string, i plan.ImagePlan) bool {
	g := r.Record.Good[record.GoodKey(file, i.Want.Image.Container)]
	return i.Running.Digest != "" && g.Running != "" &&
		!r.Record.IsGood(g, i.Want.Ask.Repository, i.Running.Digest, i.Config)
}

func (r *Report) offeredState(p plan.PodPlan, i plan.ImagePlan) status.ReleaseState {
	f, hasFailed := r.Record.Failed[p.File]
	isPersons := func(h status.Hold) bool { return !h.Explained().OnlyAuto }
	switch {
	case hasFailed && f.Offer == p.ID:
		return status.ReleaseFailed
	case len(p.Holds) > 0 || slices.ContainsFunc(p.Waits, isPersons):
		return status.ReleaseHeld
	case !i.Staged:
		return status.ReleaseOffered
	default:
		return status.ReleaseStaged
	}
}
