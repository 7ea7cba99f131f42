// SPDX-License-Identifier: Apache-2.0

package record

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// Denial is why this node refuses a release, until a person allows it or it passes a health check.
type Denial struct {
	At          time.Time `json:"at"`
	Name        string    `json:"name"` // the release's best name
	Created     time.Time `json:"created,omitzero"`
	PodManifest string    `json:"podManifest"`
	Reason      string    `json:"reason"`
	ByHand      bool      `json:"byHand,omitempty"` // a person rolled it back
	// Named is the last day on which the source named it or the node ran it.
	Named time.Time `json:"named,omitzero"`
	// Past: a newer release replaced it. It stays denied, but the state is not failed.
	Past bool `json:"past,omitempty"`
}

// Denies refuses a release whose digest failed on this node, under any name.
func (r *Record) Denies(rel release.Release) (policy.Refusal, bool) {
	for _, key := range slices.Sorted(maps.Keys(r.Denied)) {
		if d := r.Denied[key]; rel.Digest != "" && strings.HasSuffix(key, "@"+rel.Digest.String()) {
			return policy.Refusal{
				Tag: rel.Name(), Rule: policy.RuleFailed, Reason: d.PodManifest + ": " + d.Reason, ByHand: d.ByHand,
			}, true
		}
	}
	return policy.Refusal{}, false
}

// HasFailed reports whether a release of that name is denied.
func (r *Record) HasFailed(repository, name string) bool {
	for key, d := range r.Denied {
		if d.Name == name && strings.HasPrefix(key, repository+"@") {
			return true
		}
	}
	return false
}

// Allow removes the denials of releases ("repository@digest"), and the failure and the pending rollback of their pod
// manifest. A rollback that a person began, or that follows the pod's set, is completed first: another pod may have
// returned already.
func (r *Record) Allow(file string, releases []string) {
	for _, key := range releases {
		r.Denied.Delete(key)
	}
	r.Failed.Delete(file)
	if o := r.Overrides[file]; o.Pending && !o.ByHand && o.Set == "" {
		r.Overrides.Delete(file)
	}
}

// PassFailures notes that a person checks the node after the agent's own failures: only a new apply shows whether their
// cause is gone. A pod that did not come up stays failed.
func (r *Record) PassFailures() {
	for file, f := range r.Failed {
		if f.Past = f.Running == ""; f.Past {
			r.Failed.Set(file, f)
		}
	}
}

// Denials are removed denialAge after their release was last named, and beyond maxDenials
// in a repository.
const (
	denialAge  = 90 * 24 * time.Hour
	maxDenials = 32
)

func (d Denial) lastNamed() time.Time { return later(d.At, d.Named) }

// Refuses returns the rule that refuses a release, independent of the running one.
func (r *Record) Refuses(rel release.Release, rule policy.Rule) (policy.Refusal, bool) {
	if no, refused := rule.Refuses(rel); refused {
		return no, true
	}
	if no, refused := r.Denies(rel); refused {
		return no, true
	}
	u, unsigned := r.Unsigned[release.Key(rel.Repository, rel.Digest)]
	if !unsigned || rule.Signatures != policy.SignaturesRequire {
		return policy.Refusal{}, false
	}
	again := u.RetryAt.UTC()
	return policy.Refusal{
		Tag: rel.Name(), Rule: policy.RuleSignature, RetryAt: again,
		Reason: u.Reason + "; next try at " + again.Format(time.RFC3339),
	}, true
}

// Denied is the data that Allow removes.
type Denied struct {
	denied    Entries[Denial]
	failed    Entries[Failure]
	overrides Entries[Override]
}

// Denials returns what Allow may remove now.
func (r *Record) Denials() Denied {
	return Denied{maps.Clone(r.Denied), maps.Clone(r.Failed), maps.Clone(r.Overrides)}
}

// Deny restores the data that Allow has removed for a pod manifest since d was taken; "": for all.
func (r *Record) Deny(d Denied, file string) {
	isOf := func(other string) bool { return file == "" || file == other }
	for key, v := range d.denied {
		if _, is := r.Denied[key]; !is && isOf(v.PodManifest) {
			r.Denied.Set(key, v)
		}
	}
	for key, v := range d.failed {
		if _, is := r.Failed[key]; !is && isOf(key) {
			r.Failed.Set(key, v)
		}
	}
	for key, v := range d.overrides {
		if _, is := r.Overrides[key]; !is && v.Pending && isOf(key) {
			r.Overrides.Set(key, v)
		}
	}
}

// ByHand is the reason of a denial by a person's rollback.
const ByHand = "rolled back by hand"

// RolledBack returns the releases from which a pod was rolled back; nil if it was not.
func (r *Record) RolledBack(file string) *status.RolledBack {
	o, ok := r.Overrides[file]
	if !ok || o.Pending {
		return nil
	}
	back := status.RolledBack{At: o.At, Reason: o.Reason, ByHand: o.ByHand, Runs: o.tags(), Retries: []status.Retry{}}
	newest := map[string]Denial{}
	for _, key := range slices.Sorted(maps.Keys(r.Denied)) {
		if d := r.Denied[key]; d.PodManifest == file {
			back.Denied = append(back.Denied, d.Name)
			back.ByHand = back.ByHand || d.ByHand
			image, of, _ := strings.Cut(key, "@")
			if last, is := newest[image]; !is || d.isNewer(last) {
				newest[image] = d
				back.Retries = slices.DeleteFunc(back.Retries, func(t status.Retry) bool { return t.Image == image })
				back.Retries = append(back.Retries, status.Retry{
					Image: image, Tag: d.Name, Digest: digest.Digest(of), Reason: d.Reason,
				})
			}
		}
	}
	if len(back.Denied) == 0 {
		return nil // the override pins a digest while the registry is away
	}
	return &back
}

// isNewer compares what was denied by its creation, else by the denial.
func (d Denial) isNewer(than Denial) bool {
	return cmp.Or(d.Created.Compare(than.Created), d.At.Compare(than.At)) > 0
}

// FailureKind returns the kind of reason for a pod that did not come up.
func (r *Record) FailureKind(file string) status.Kind {
	switch {
	case r.Overrides[file].Pending:
		return status.KindStep // its rollback is pending
	case r.Failed[file].Running == "" && r.RolledBack(file) != nil:
		return status.KindRolledBack
	default:
		return status.KindNotUp
	}
}
