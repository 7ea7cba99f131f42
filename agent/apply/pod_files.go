// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/manifests"
)

// checkAlone returns a hold if another file of kubelet's directory defines, or may define, a pod that contents define;
// contents are versions of file. It reads the directory, because the other file may be new.
func (x *Executor) checkAlone(ctx context.Context, file string, contents ...[]byte) error {
	files, err := x.Files.PodManifests(ctx)
	if err != nil {
		return fmt.Errorf("pod manifests: %w", err)
	}
	x.Observed.Parse(files)
	for _, text := range contents {
		pod := manifests.Defines(text)
		if twice := node.FindDuplicate(files, file, pod); pod != "" && twice.Is() {
			return &release.HoldError{Hold: status.HoldDuplicate, Err: errors.New(twice.String())}
		}
	}
	return nil
}

// Announce records the pod manifests that the steps create, before they are written. On the first start of a node, the
// record is then saved once, and not after each file. The cycle drops the entry of a file that was not created.
func (x *Executor) Announce(ctx context.Context, steps []plan.Step) {
	changed := false
	for _, s := range steps {
		if s.Do == plan.StepWrite && s.Was.Data == nil && len(s.Bound) == 0 {
			changed = x.record(s) || changed
		}
	}
	if changed {
		x.Records.TrySave(ctx, "")
	}
}

// record records that the agent writes a pod manifest. It reports whether the record has changed.
func (x *Executor) record(s plan.Step) (changed bool) {
	rec := &x.Records.Record
	if len(s.Bound) > 0 && !maps.Equal(rec.Bound[s.File], s.Bound) {
		rec.Bound.Set(s.File, s.Bound)
		changed = true
	}
	if d := digest.FromBytes(s.Data); s.Ours && rec.Wrote[s.File] != d {
		rec.Wrote.Set(s.File, d)
		changed = true
	}
	return changed
}

// Write writes a pod manifest and records that the agent wrote it. An error of saving the record does not fail the
// write: the cycle saves the record again at its end.
func (x *Executor) Write(ctx context.Context, s plan.Step) error {
	if err := x.checkAlone(ctx, s.File, s.Data, s.Was.Data); err != nil {
		return err
	}
	if err := x.Files.Write(ctx, s.Was, s.Data); err != nil {
		return err
	}
	if x.record(s) {
		x.Records.TrySave(ctx, s.File)
	}
	return nil
}

// Remove removes a pod manifest that the agent wrote.
func (x *Executor) Remove(ctx context.Context, s plan.Step) error {
	if err := x.checkAlone(ctx, s.File, s.Was.Data); err != nil {
		return err
	}
	if err := x.Files.Remove(ctx, s.Was); err != nil {
		return err
	}
	x.Records.Record.Wrote.Delete(s.File)
	return x.Records.Save(ctx)
}

// PutBack restores the pod manifests that a killed run of the agent had set aside.
func (x *Executor) PutBack(ctx context.Context) error {
	names, err := x.Files.PutBack(ctx)
	for _, name := range names {
		x.Log.Info("pod manifest restored", "file", name)
	}
	if err != nil {
		return fmt.Errorf("pod manifests: restore: %w", err)
	}
	return nil
}
