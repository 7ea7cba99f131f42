// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"encoding/json"
	"path"
	"reflect"
	"slices"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/fleet"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/source"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/tags"
)

func (h *history) invariants(s status.Status) {
	if busy, _ := h.Grain.Busy(h.t.Context()); busy == "" { // otherwise the grain keeps its text
		for _, u := range h.Grain.Last().Updates {
			require.True(h.t, h.Node.Pinned(u.Image, u.Digest), "%s %s is offered but not staged", u.Image, u.To)
		}
	}
	if h.last.State == s.State {
		require.Equal(h.t, h.last.Since, s.Since, "since moved without the state")
	}
	require.NotEmpty(h.t, s.Reasons, s.Reason)
	for _, r := range s.Reasons {
		require.NotEmpty(h.t, r.Kind)
		require.NotEmpty(h.t, r.Text)
	}
	require.Empty(h.t, nullLists(reflect.ValueOf(s), ""))
	require.LessOrEqual(h.t, len(s.History), 50)
	require.Equal(h.t, s.State == status.StateFailed, len(s.Failures) > 0)
	trouble := s.State == status.StateFailed
	for _, i := range s.Images {
		if i.Offered != nil && i.Staged {
			require.True(h.t, h.Node.Pinned(i.Image, i.Offered.Digest))
		}
		h.offerHolds(i)
		if c, ok := h.Node.Container(i.PodManifest, i.Container); ok && c.Running && i.Running != nil {
			require.Equal(h.t, c.Digests[0], i.Running.Digest, "status says what runs")
		}
	}
	h.last = s
	h.namesHold()
	h.recordHolds()
	plan, err := h.agent.Plan(h.t.Context(), source.PollNone)
	require.NoError(h.t, err)
	if trouble || h.died || len(h.record().Approved) > 0 { // an interrupted apply continues
		return
	}
	h.comesToRest(plan, s)
}

// comesToRest asserts that the cycles after this one do almost nothing: they release what a deleted or applied pod
// manifest needed, and finish health checks of written pods, which set a new rollback target.
func (h *history) comesToRest(p plan.Plan, s status.Status) {
	var err error
	for range 2 {
		for _, step := range p.Steps {
			if step.Apply.Auto {
				return // it waits for its registry, and each observation retries it
			}
			if step.Do == plan.StepRollBack && s.Lock.State == fleet.LockWaiting {
				return // a person's rollback of a healthy pod waits for the lock
			}
			if step.Lost {
				continue // a new rollback target: the next cycle fetches it, or the next poll if the registry lacks it
			}
			require.Contains(h.t, []plan.Verb{plan.StepPin, plan.StepPrune, plan.StepVerify}, step.Do, "a second cycle would %s: %s", step, s.Reason)
		}
		s, err = h.agent.Cycle(h.t.Context(), source.PollNone)
		require.NoError(h.t, err)
		h.last = s
		for _, i := range s.Images {
			if i.Running != nil && len(h.Node.Names(i.Running.Digest)) > 0 {
				require.True(h.t, h.Node.Pinned(i.Image, i.Running.Digest), "%s runs %v without a pin", i.PodManifest, i.Running)
			}
		}
		p, err = h.agent.Plan(h.t.Context(), source.PollNone)
		require.NoError(h.t, err)
		if s.State == status.StateFailed {
			return // a release started by a write did not come up
		}
	}
	require.Empty(h.t, p.Steps, "a fourth cycle has steps")
}

// offerHolds asserts that all offers obey the current rules.
func (h *history) offerHolds(i status.ImageStatus) {
	if i.Offered == nil || i.Running == nil {
		return
	}
	to, change := h.namesOf(i), tags.Same
	for _, tag := range to {
		require.Empty(h.t, matching(h.rule.Deny, tag), "%s is denied", tag)
		t, err := tags.Parse(tag)
		require.False(h.t, err == nil && t.Exceeds(h.rule.Max), "%s is above %s", tag, h.rule.Max)
		if follow, errFollow := tags.Parse(i.Follow); err == nil && errFollow == nil {
			change = max(change, tags.ChangeBetween(follow, t))
		}
	}
	require.NotContains(h.t, h.rule.Deny, i.Offered.Digest.String())
	allowed := len(h.rule.Allow) == 0 || slices.ContainsFunc(to, func(tag string) bool { return matching(h.rule.Allow, tag) != "" })
	require.True(h.t, allowed, "%v is not among %v", to, h.rule.Allow)
	_, failed := h.record().Denied[i.Image+"@"+i.Offered.Digest.String()]
	require.False(h.t, failed, "%v did not come up", to)
	if i.Change == policy.ChangeConvert {
		return // the running release may be unsigned
	}
	signed := h.rule.Signatures != policy.SignaturesRequire || h.record().Signed[i.Image+"@"+i.Offered.Digest.String()] != ""
	require.True(h.t, signed || !i.Staged, "%v is not signed", to)
	if h.isOnDisk(i.PodManifest, i.Image, i.Follow) {
		change = max(change, tags.Rebuild) // no template uses it
	}
	require.LessOrEqual(h.t, change, h.rule.Updates, "%s to %v: %s", i.Follow, to, i.Change)
	h.offersNothingOlder(i)
}

func matching(patterns []string, name string) string {
	for _, p := range patterns {
		if ok, _ := path.Match(p, name); ok {
			return p
		}
	}
	return ""
}

// namesOf returns the tags of the offer: its best name, and the floating tag for the rendered pod manifest.
func (h *history) namesOf(i status.ImageStatus) []string {
	names := []string{i.Offered.Tag}
	for _, o := range h.record().Offers {
		for _, c := range o.Newer {
			if c.Digest == i.Offered.Digest && c.Repository == i.Image {
				names = append(names, c.Tag)
			}
		}
	}
	return names
}

func (h *history) isOnDisk(file, repository, tag string) bool {
	return strings.Contains(h.Node.PodManifest(file)+"\n", repository+":"+tag+"\n")
}

// offersNothingOlder asserts that a tag that was moved to an older build is followed only if the policy says so.
func (h *history) offersNothingOlder(i status.ImageStatus) {
	is, errIs := tags.Parse(i.Offered.Tag)
	was, errWas := tags.Parse(i.Running.Tag)
	if errIs != nil || errWas != nil || h.rule.Older || is.Form() != tags.Long || was.Form() != tags.Long {
		return
	}
	later := strings.Contains(strings.Join(i.Notes, " "), "was created later") // an OBS counter that was reset
	if line, _ := is.Intermediate(); !later || i.Follow != is.App() && i.Follow != line.String() {
		require.GreaterOrEqual(h.t, tags.Compare(is, was), 0, "%s was offered to follow %s", is, was)
	}
}

// recordHolds asserts that the record survives a save and load, and that the node has every rollback target.
func (h *history) recordHolds() {
	r := h.record()
	data, err := json.Marshal(r)
	require.NoError(h.t, err)
	require.JSONEq(h.t, h.Disk.JSON(), string(data))
	for key, g := range r.Good {
		for _, p := range g.Before {
			if len(h.Node.Names(p.Digest)) > 0 && h.last.State != status.StateFailed {
				require.True(h.t, h.Node.Pinned(p.Repository, p.Digest), "%s: a rollback target is not pinned", key)
			}
		}
	}
}

// settle asserts that the node always converges: with the registry back and everything approved, all managed pods are
// up to date.
func (h *history) settle() {
	h.unlock()
	h.Registry.Down(nil)
	h.Registry.DownLists(nil)
	h.Grain.SetBusy("")
	h.staging, h.tableFull = false, false
	h.empty()
	for _, d := range h.crashed {
		h.Node.Crash(d, false)
	}
	h.resume()
	h.Policy.StageDelay, h.Policy.ConfirmAfter = 0, 0
	h.obey(policy.Rule{Updates: tags.Revision})
	h.agent = h.Agent()
	if h.lost {
		h.template(false) // without it the file is unmanaged
	}
	for _, repository := range []string{velum, mariadb, etcd} {
		newest := h.revs[repository]
		for h.revs[repository] = 1; h.revs[repository] < newest; h.revs[repository]++ {
			h.rebuild(repository) // any retracted release is back
		}
		h.rebuild(repository)
	}
	for range 3 {
		h.Node.Sync() // kubelet retries failed pulls
		h.cycle(source.PollAll)
		h.apply(h.t.Context())
	}
	for _, file := range []string{"velum.yaml", "db.yaml"} {
		p := podOf(h.last, file)
		require.Empty(h.t, p.Change, "%s: %s", file, h.last.Reason)
		require.Empty(h.t, p.Error)
		for _, hold := range p.Holds {
			require.Contains(h.t, []string{"unmanaged", "edited"}, hold.Name, hold.Reason)
		}
		require.Empty(h.t, h.Node.WaitingFile(file))
	}
	require.Empty(h.t, h.Fleet.Holders(), "what is verified healthy needs no lock: %s", h.last.Reason)
}
