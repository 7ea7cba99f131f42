// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"time"

	"github.com/opencontainers/go-digest"
)

// listPatience is how long CRI may take to list what was staged: it hears of an
// image by an event, and on a busy node that comes late.
const listPatience = 10 * time.Second

// stage verifies and pulls a release, and checks that kubelet will find it.
func (a *Agent) stage(ctx context.Context, r Release) error {
	if err := a.verify(ctx, r); err != nil {
		return err
	}
	if err := a.Images.Stage(ctx, r, a.Progress); err != nil {
		return err
	}
	name := r.StagedName()
	id, ok, err := a.awaitListed(ctx, name)
	switch {
	case err != nil:
		return fmt.Errorf("%s: cri: %w", name, err)
	case !ok:
		return fmt.Errorf("%s: staged, but cri does not list it after %s", name, listPatience)
	case r.Config != "" && id != r.Config:
		return fmt.Errorf("%s: cri lists image id %s instead of %s", name, id, r.Config)
	}
	return nil
}

// awaitListed asks CRI for an image until it lists it, or its patience ends.
func (a *Agent) awaitListed(ctx context.Context, name string) (digest.Digest, bool, error) {
	end := time.NewTimer(listPatience)
	defer end.Stop()
	tick := time.NewTicker(proofInterval)
	defer tick.Stop()
	for {
		id, ok, err := a.Pods.Lists(ctx, name)
		if ok || err != nil {
			return id, ok, err
		}
		select {
		case <-ctx.Done():
			return "", false, ctx.Err()
		case <-end.C:
			return "", false, nil
		case <-tick.C:
		}
	}
}
