// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/opencontainers/go-digest"
	"golang.org/x/sync/errgroup"
)

// listPatience is how long CRI may take to list what was staged: it hears of an
// image by an event, and on a busy node that comes late.
const listPatience = 10 * time.Second

// stageAll stages releases, several at a time. Who has made them is found out
// before, one after another: it costs little, and is kept in the record. A person's
// request interrupts them.
func (a *Agent) stageAll(ctx context.Context, steps []Step) *Interruption {
	if len(steps) == 0 {
		return nil
	}
	ctx, end := a.people.interruptible(ctx)
	defer end()
	var pulls errgroup.Group
	pulls.SetLimit(max(1, a.Policy.Together))
	ended := make([]error, len(steps))
	for n, s := range steps {
		if ended[n] = ctx.Err(); ended[n] != nil {
			continue
		}
		if ended[n] = a.verify(ctx, s.Release); ended[n] != nil {
			continue
		}
		pulls.Go(func() error {
			ended[n] = a.stage(ctx, s.Release)
			return nil
		})
	}
	_ = pulls.Wait() // each has its own error
	for n, s := range steps {
		if errors.Is(ended[n], errCrowded) {
			ended[n] = a.stage(ctx, s.Release)
		}
		a.note(ctx, s, ended[n])
	}
	return a.interrupted(ctx, "staging", PollNone)
}

// stage pulls a release and checks that kubelet will find it.
func (a *Agent) stage(ctx context.Context, r Release) error {
	key := releaseKey(r.Repository, r.Digest)
	end := a.attend()
	err := a.Images.Stage(ctx, r, Terms{Progress: a.tell, Room: a.room(key)})
	end()
	if errors.Is(err, ErrNoSpace) {
		err = a.overflowed(ctx, key, err)
	}
	a.endPull(key, err)
	a.countStaged(ctx, err)
	if err != nil {
		phase := "failed"
		if ctx.Err() != nil {
			phase = "interrupted"
		}
		a.tell(Progress{Reference: r.StagedName(), Phase: phase})
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
