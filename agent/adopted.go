// SPDX-License-Identifier: Apache-2.0

package agent

import "context"

// proveRunning proves what a pod runs by nobody's approval: kubelet took it by
// itself, or an apply was cut short.
func (a *Agent) proveRunning(ctx context.Context, s Step) error {
	err := a.prove(ctx, s, nil)
	switch {
	case err == nil:
		yes, approved := a.record.Approved[s.File]
		approved = a.applied[s.File] || approved && yes.Offer == s.Apply.Offer
		a.noteProof(s, !approved)
		for _, e := range s.Apply.Expect {
			delete(a.record.Denied, releaseKey(e.Ref.Repository, e.Digest))
		}
		delete(a.record.Failed, s.File)
		a.record.moveOn(s) // somebody may have brought it to something else, which runs well
		return a.save(ctx)
	case ctx.Err() != nil, !isDown(err):
		return err
	}
	return a.failed(ctx, s, err)
}

// noteProof keeps what a pod was proved to run, and what each of its containers ran
// before: the way back.
func (a *Agent) noteProof(s Step, adopted bool) {
	for _, e := range s.Apply.Expect {
		key := goodKey(s.File, e.Container)
		g := a.record.Good[key]
		config := a.record.Releases[releaseKey(g.Repository, g.Running)].Config
		if g.Repository == e.Ref.Repository && (g.Running == e.Digest || config != "" && config == e.Config) {
			continue // one image may have several digests
		}
		a.record.good(key, Good{
			Repository: e.Ref.Repository, Running: e.Digest, Adopted: adopted,
			Before: g.before(e.Ref.Repository, e.Digest, a.Policy.Prune.Keep),
		})
	}
}

// good keeps what a container runs well.
func (r *Record) good(key string, g Good) {
	if r.Good == nil {
		r.Good = map[string]Good{}
	}
	r.Good[key] = g
}
