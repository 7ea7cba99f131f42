// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"slices"

	"github.com/kubic-project/image-update-agent/agent/apply"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/manifests"
)

// results are the results of the steps of a cycle, in order.
type results []stepResult

// stepResult is the result of one step.
type stepResult struct {
	step     plan.Step
	err      error
	deferred bool // left for the next cycle
	restart  apply.Result
}

// err returns the last error of a release or pod manifest.
func (rs results) err(key string) error {
	for n := len(rs) - 1; n >= 0; n-- { // a result is large, and few have an error
		if r := &rs[n]; r.err != nil && r.step.Key() == key {
			return r.err
		}
	}
	return nil
}

// errors returns all errors, by release or pod manifest.
func (rs results) errors() map[string]error {
	out := map[string]error{}
	for _, r := range rs {
		if r.err != nil {
			out[r.step.Key()] = r.err
		}
	}
	return out
}

// isDeferred reports whether a step is left for the next cycle.
func (rs results) isDeferred(key string) bool {
	for n := range rs {
		if r := &rs[n]; r.deferred && r.step.Key() == key {
			return true
		}
	}
	return false
}

// hasDeferred reports whether a step that did not fail is left for the next cycle.
func (rs results) hasDeferred() bool {
	return slices.ContainsFunc(rs, func(r stepResult) bool { return r.deferred && rs.err(r.step.Key()) == nil })
}

// unstagedNeed returns a needed release that was not staged in this cycle; "" if there is none.
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
	return slices.ContainsFunc(rs, func(r stepResult) bool { return r.step.File == file && r.restart.Applied })
}

// hasTagMoved reports whether a tag was moved during an apply.
func (rs results) hasTagMoved() bool {
	return slices.ContainsFunc(rs, func(r stepResult) bool { return r.restart.TagMoved })
}

// unchecked returns the containers whose readiness could not be checked.
func (rs results) unchecked(file string) []string {
	var out []string
	for _, r := range rs {
		if r.step.File == file && r.restart.Unchecked != nil {
			out = r.restart.Unchecked
		}
	}
	return out
}

// refusal returns why a step may not be applied: its release failed in another pod, or it is a client of an API server
// that was not applied. nil if it may.
func (rs results) refusal(p plan.Apply) error {
	for _, r := range rs {
		if r.err == nil {
			continue
		}
		if r.step.Do == plan.StepApply && r.step.Apply.Role == manifests.RoleAPIServer && plan.IsClient(p.Role) &&
			policy.IsMinor(p.Change) {
			return fmt.Errorf("%w: %s was not applied, and %s must not be newer than it", release.ErrHeld, r.step.Apply.Pod,
				p.Pod)
		}
		for _, e := range p.Expect {
			key := release.Key(e.Ref.Repository, e.Digest)
			if !e.OnNode && slices.Contains(r.restart.FailedReleases, key) {
				return fmt.Errorf("%w: %s did not become healthy within %s", release.ErrHeld, e.Name, r.step.File)
			}
		}
	}
	return nil
}

// addRollback adds the result of a rollback to the error of its apply.
func (rs results) addRollback(file, releases string, err error) bool {
	for n, r := range slices.Backward(rs) {
		if r.step.File != file || !r.restart.RollBack {
			continue
		}
		if err == nil {
			rs[n].err = fmt.Errorf("%w; rolled back to %s", r.err, releases)
		} else { // only the first error is wrapped
			rs[n].err = fmt.Errorf("%w; roll back: %v", r.err, err) //nolint:errorlint // see above
		}
		return true
	}
	return false
}
