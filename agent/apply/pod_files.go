// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"context"
	"fmt"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/plan"
)

// Write writes a pod manifest and records that the agent wrote it. An error of saving the
// record is no error of the write: the cycle saves the record again at its end.
func (r *Restarter) Write(ctx context.Context, s plan.Step) error {
	if err := r.Files.Write(ctx, s.Was, s.Data); err != nil {
		return err
	}
	if len(s.Bound) > 0 {
		r.Records.Record.Bound.Set(s.File, s.Bound)
	}
	if s.Ours {
		r.Records.Record.Wrote.Set(s.File, digest.FromBytes(s.Data))
	}
	r.Records.TrySave(ctx, s.File)
	return nil
}

// Remove removes a pod manifest that the agent wrote.
func (r *Restarter) Remove(ctx context.Context, s plan.Step) error {
	if err := r.Files.Remove(ctx, s.Was); err != nil {
		return err
	}
	r.Records.Record.Wrote.Delete(s.File)
	return r.Records.Save(ctx)
}

// PutBack restores the pod manifests that a killed run of the agent left set aside.
func (r *Restarter) PutBack(ctx context.Context) error {
	names, err := r.Files.PutBack(ctx)
	for _, name := range names {
		r.Log.Info("pod manifest put back", "file", name)
	}
	if err != nil {
		return fmt.Errorf("pod manifests: put back: %w", err)
	}
	return nil
}
