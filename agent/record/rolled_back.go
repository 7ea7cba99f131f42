// SPDX-License-Identifier: Apache-2.0

package record

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/status"
)

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
			image, _, _ := strings.Cut(key, "@")
			if last, is := newest[image]; !is || d.isNewer(last) {
				newest[image] = d
				back.Retries = slices.DeleteFunc(back.Retries, func(t status.Retry) bool { return t.Image == image })
				back.Retries = append(back.Retries, retryOf(key, d))
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

func retryOf(key string, d Denial) status.Retry {
	image, of, _ := strings.Cut(key, "@")
	return status.Retry{Image: image, Tag: d.Name, Digest: digest.Digest(of), Reason: d.Reason}
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
