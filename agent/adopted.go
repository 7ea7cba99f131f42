// SPDX-License-Identifier: Apache-2.0

package agent

import "context"

// Prove proves what a pod runs by nobody's approval: kubelet took it by itself, or an
// apply was cut short (approved).
func (r *Restarter) Prove(ctx context.Context, s Step, approved bool) RestartResult {
	x, rec := r.begin(s), &r.Records.Record
	err := x.prove(ctx, nil)
	switch {
	case err == nil:
		rec.NoteProof(s.File, s.proved(), !approved, r.Policy.Prune.Keep)
		for _, p := range s.proved() {
			rec.Denied.Delete(releaseKey(p.Repository, p.Digest))
		}
		rec.Failed.Delete(s.File)
		rec.MoveOn(s.File, s.Data, s.proved()) // somebody may have brought it to something else, which runs well
		return x.ended(r.Records.Save(ctx))
	case ctx.Err() != nil, !isDown(err):
		return x.ended(err)
	}
	return x.failed(ctx, err)
}
