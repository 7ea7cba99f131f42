// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"context"
	"fmt"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/plan"
)

// Write writes a pod manifest and records that it is ours. What is written is written:
// a record that cannot be saved now is saved, or missed, at the cycle's end.
func (r *Restarter) Write(ctx context.Context, s plan.Step) error {
	if err := r.Files.Write(ctx, s.Was, s.Data); err != nil {
		return err
	}
	if s.Ours {
		r.Records.Record.Wrote.Set(s.File, digest.FromBytes(s.Data))
	}
	r.Records.SaveSoon(ctx, s.File)
	return nil
}

// Remove removes a pod manifest of ours.
func (r *Restarter) Remove(ctx context.Context, s plan.Step) error {
	if err := r.Files.Remove(ctx, s.Was); err != nil {
		return err
	}
	r.Records.Record.Wrote.Delete(s.File)
	return r.Records.Save(ctx)
}

// PutBack restores the pod manifests that an earlier life of the agent has set aside.
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
