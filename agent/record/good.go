// SPDX-License-Identifier: Apache-2.0

package record

import (
	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/release"
)

// NoteRunning records the first digest that each container is seen to run. Others are
// recorded after their proof, see NoteProof. keep is how many rollback targets stay.
func (r *Record) NoteRunning(pods map[string]PodInUse, keep int) {
	for file, p := range pods {
		for _, i := range p.Images {
			key := GoodKey(file, i.Container)
			g, known := r.Good[key]
			isNew := !known && !i.Restarts || known && r.IsGood(g, i.Repository, i.Running, i.Config)
			if i.Repository != "" && i.Running != "" && i.RunsWell && isNew {
				r.Good.Set(key, Good{
					Repository: i.Repository, Running: i.Running, Adopted: g.Adopted,
					Before: g.targets(i.Repository, i.Running, keep),
				})
			}
		}
	}
}

// Proved is an image that a container was proved to run.
type Proved struct {
	Container string
	Place     string // in the pod manifest: "container velum"
	release.Pin
	Config digest.Digest // its image id
}

// NoteProof records what a pod was proved to run. What its containers ran before becomes
// their rollback target. adopted: kubelet started it without an approval.
func (r *Record) NoteProof(file string, proved []Proved, adopted bool, keep int) {
	for _, p := range proved {
		key := GoodKey(file, p.Container)
		g := r.Good[key]
		if r.IsGood(g, p.Repository, p.Digest, p.Config) {
			continue
		}
		r.Good.Set(key, Good{
			Repository: p.Repository, Running: p.Digest, Adopted: adopted, Before: g.targets(p.Repository, p.Digest, keep),
		})
	}
}

// HasTarget reports whether a container may have a rollback target: another release than the running one ran well.
func (r *Record) HasTarget(file, container string, running digest.Digest) bool {
	g := r.Good[GoodKey(file, container)]
	return len(g.Before) > 0 || g.Running != "" && g.Running != running
}

// IsGood reports whether a container runs what ran well. Digests differ for one image if
// their indexes differ in other platforms.
func (r *Record) IsGood(g Good, repository string, running, config digest.Digest) bool {
	if g.Repository != repository || g.Running == "" {
		return false
	}
	known := r.Releases[release.Key(g.Repository, g.Running)].Config
	return g.Running == running || known != "" && known == config
}

// targets returns the rollback targets of what runs now, at most keep of them.
func (g Good) targets(repository string, running digest.Digest, keep int) []release.Pin {
	var out []release.Pin
	for _, p := range append([]release.Pin{{Repository: g.Repository, Digest: g.Running}}, g.Before...) {
		if p.Digest != "" && p != (release.Pin{Repository: repository, Digest: running}) && len(out) < keep {
			out = append(out, p)
		}
	}
	return out
}
