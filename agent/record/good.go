// SPDX-License-Identifier: Apache-2.0

package record

import (
	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/release"
)

// NoteRunning records the first digest of each container. Later ones are recorded after their health check, see
// NoteHealthy. keep is the number of rollback targets.
func (r *Record) NoteRunning(pods map[string]PodInUse, keep int) {
	for file, p := range pods {
		for _, i := range p.Images {
			key := GoodKey(file, i.Container)
			g, known := r.Good[key]
			isNew := !known && !i.Restarts || known && r.IsGood(g, i.Repository, i.Running, i.Config)
			if i.Repository != "" && i.Running != "" && i.RunsWell && isNew {
				r.Good.Set(key, Good{
					Repository: i.Repository, Running: i.Running, PickedUp: g.PickedUp,
					Before: g.targets(i.Repository, i.Running, keep),
				})
			}
		}
	}
}

// Healthy is an image that passed its health check in a container.
type Healthy struct {
	Container string
	Place     string // in the pod manifest: "container velum"
	release.Pin
	Config digest.Digest // its image id
}

// NoteHealthy records the releases that passed a pod's health check. The previous releases of its containers become
// their rollback targets. pickedUp: kubelet started it without an approval.
func (r *Record) NoteHealthy(file string, healthy []Healthy, pickedUp bool, keep int) {
	for _, p := range healthy {
		key := GoodKey(file, p.Container)
		g := r.Good[key]
		if r.IsGood(g, p.Repository, p.Digest, p.Config) {
			continue
		}
		r.Good.Set(key, Good{
			Repository: p.Repository, Running: p.Digest, PickedUp: pickedUp, Before: g.targets(p.Repository, p.Digest, keep),
		})
	}
}

// HasTarget reports whether a container may have a rollback target: a known good release other than the running one.
func (r *Record) HasTarget(file, container string, running digest.Digest) bool {
	g := r.Good[GoodKey(file, container)]
	return len(g.Before) > 0 || g.Running != "" && g.Running != running
}

// IsGood reports whether a container runs a known good release. The digests of one image differ if their indexes differ
// in other platforms.
func (r *Record) IsGood(g Good, repository string, running, config digest.Digest) bool {
	if g.Repository != repository || g.Running == "" {
		return false
	}
	known := r.Releases[release.Key(g.Repository, g.Running)].Config
	return g.Running == running || known != "" && known == config
}

// targets returns the rollback targets for the running release, at most keep of them.
func (g Good) targets(repository string, running digest.Digest, keep int) []release.Pin {
	var out []release.Pin
	for _, p := range append([]release.Pin{{Repository: g.Repository, Digest: g.Running}}, g.Before...) {
		if p.Digest != "" && p != (release.Pin{Repository: repository, Digest: running}) && len(out) < keep {
			out = append(out, p)
		}
	}
	return out
}
