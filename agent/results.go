// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"slices"

	"github.com/kubic-project/image-update-agent/agent/apply"
	"github.com/kubic-project/image-update-agent/agent/follow"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/release"
)

// results are what the steps of a cycle came to, in their order.
type results []stepResult

// stepResult is how one step has ended.
type stepResult struct {
	step     plan.Step
	err      error
	deferred bool // it is left to the next cycle
	restart  apply.RestartResult
}

// err is why a release was not staged, or what went wrong with a pod manifest; nil:
// nothing.
func (rs results) err(key string) error {
	for _, r := range slices.Backward(rs) {
		if r.step.Key() == key && r.err != nil {
			return r.err
		}
	}
	return nil
}

// errors are all that went wrong, by release or pod manifest.
func (rs results) errors() map[string]error {
	out := map[string]error{}
	for _, r := range rs {
		if r.err != nil {
			out[r.step.Key()] = r.err
		}
	}
	return out
}

// isDeferred reports whether a step about a release or pod manifest is left to the next
// cycle.
func (rs results) isDeferred(key string) bool {
	return slices.ContainsFunc(rs, func(r stepResult) bool { return r.deferred && r.step.Key() == key })
}

// hasDeferred reports whether anything is left to the next cycle that has not failed.
func (rs results) hasDeferred() bool {
	return slices.ContainsFunc(rs, func(r stepResult) bool {
		return r.deferred && rs.err(r.step.Key()) == nil
	})
}

// unstagedNeed is a release that a step needs and that was not staged in this cycle.
func (rs results) unstagedNeed(s plan.Step) string {
	for _, need := range s.Needs {
		if rs.err(need) != nil || rs.isDeferred(need) {
			return need
		}
	}
	return ""
}

// isApplied reports whether a pod manifest was applied in this cycle.
func (rs results) isApplied(file string) bool {
	return slices.ContainsFunc(rs, func(r stepResult) bool {
		return r.step.File == file && r.restart.Applied
	})
}

// hasTagMoved reports whether a tag has moved on under what was to be applied.
func (rs results) hasTagMoved() bool {
	return slices.ContainsFunc(rs, func(r stepResult) bool { return r.restart.TagMoved })
}

// unchecked are the containers of a pod manifest whose readiness nobody could check.
func (rs results) unchecked(file string) []string {
	var out []string
	for _, r := range rs {
		if r.step.File == file && r.restart.Unchecked != nil {
			out = r.restart.Unchecked
		}
	}
	return out
}

// refusal refuses to apply what has just not come up in another pod, and a client of an
// API server that has stayed as it was; nil: nothing speaks against it.
func (rs results) refusal(p plan.Apply) error {
	for _, r := range rs {
		if r.err == nil {
			continue
		}
		if r.step.Do == plan.StepApply && r.step.Apply.Pod == follow.PodAPIServer && plan.IsClient(p.Pod) &&
			policy.IsMinor(p.Change) {
			return fmt.Errorf("%w: %s was not applied, and %s must not be newer", release.ErrHeld, follow.PodAPIServer, p.Pod)
		}
		for _, e := range p.Expect {
			key := release.Key(e.Ref.Repository, e.Digest)
			if !e.OnNode && slices.Contains(r.restart.FailedReleases, key) {
				return fmt.Errorf("%w: %s did not come up in %s", release.ErrHeld, e.Name, r.step.File)
			}
		}
	}
	return nil
}

// addRollback adds to what went wrong with a pod how its rollback has ended.
func (rs results) addRollback(file, releases string, err error) bool {
	for n, r := range slices.Backward(rs) {
		if r.step.File != file || !r.restart.RollBack {
			continue
		}
		if err == nil {
			rs[n].err = fmt.Errorf("%w; rolled back to %s", r.err, releases)
		} else { // that the rollback waits is not the news
			rs[n].err = fmt.Errorf("%w; roll back: %v", r.err, err) //nolint:errorlint // see above
		}
		return true
	}
	return false
}
