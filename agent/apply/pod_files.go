// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"context"
	"errors"
	"fmt"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/manifests"
)

// checkAlone returns a hold if another file of kubelet's directory defines, or may define, a pod of contents too, which
// are those of file. It reads the directory: the other file may be new.
func (x *Executor) checkAlone(ctx context.Context, file string, contents ...[]byte) error {
	files, err := x.Files.PodManifests(ctx)
	if err != nil {
		return fmt.Errorf("pod manifests: %w", err)
	}
	for _, text := range contents {
		pod := manifests.Defines(text)
		if twice := node.FindDuplicate(files, file, pod); pod != "" && twice.Is() {
			return &release.HoldError{Hold: status.HoldDuplicate, Err: errors.New(twice.String())}
		}
	}
	return nil
}

// Write writes a pod manifest and records that the agent wrote it. An error of saving the
// record is no error of the write: the cycle saves the record again at its end.
func (x *Executor) Write(ctx context.Context, s plan.Step) error {
	if err := x.checkAlone(ctx, s.File, s.Data, s.Was.Data); err != nil {
		return err
	}
	if err := x.Files.Write(ctx, s.Was, s.Data); err != nil {
		return err
	}
	if len(s.Bound) > 0 {
		x.Records.Record.Bound.Set(s.File, s.Bound)
	}
	if s.Ours {
		x.Records.Record.Wrote.Set(s.File, digest.FromBytes(s.Data))
	}
	x.Records.TrySave(ctx, s.File)
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

// PutBack restores the pod manifests that a killed run of the agent left set aside.
func (x *Executor) PutBack(ctx context.Context) error {
	names, err := x.Files.PutBack(ctx)
	for _, name := range names {
		x.Log.Info("pod manifest put back", "file", name)
	}
	if err != nil {
		return fmt.Errorf("pod manifests: put back: %w", err)
	}
	return nil
}
