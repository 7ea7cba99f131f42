// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"context"

	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/release"
)

// Prove proves what a pod runs by nobody's approval: kubelet took it by itself, or an
// apply was cut short (approved).
func (r *Restarter) Prove(ctx context.Context, s plan.Step, approved bool) RestartResult {
	x, rec := r.begin(s), &r.Records.Record
	err := x.prove(ctx, nil)
	switch {
	case err == nil:
		rec.NoteProof(s.File, s.Proved(), !approved, r.Policy.Prune.Keep)
		for _, p := range s.Proved() {
			rec.Denied.Delete(release.Key(p.Repository, p.Digest))
		}
		rec.Failed.Delete(s.File)
		rec.MoveOn(s.File, s.Data, s.Proved()) // somebody may have brought it to something else, which runs well
		return x.ended(r.Records.Save(ctx))
	case ctx.Err() != nil, !release.IsDown(err):
		return x.ended(err)
	}
	return x.failed(ctx, err)
}
