// SPDX-License-Identifier: Apache-2.0

package images

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/containerd/containerd/v2/core/images"

	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
)

const (
	// patience is how long a pull waits for a containerd that has gone away.
	patience = 30 * time.Second
	// lookInterval is how often it looks whether containerd is back. One that is
	// updated needs a second.
	lookInterval = 250 * time.Millisecond
	// answerTime is for a containerd that takes a connection and is not ready yet.
	answerTime = 5 * time.Second
	// maxRestarts of containerd that one staging survives; one that ends again and
	// again may do so for what we ask of it.
	maxRestarts = 3
)

// job is one call of Stage: what outlives a connection to containerd.
type job struct {
	release release.Release
	ref     string // repository@digest
	terms   node.StageOptions

	granted bool                     // Room was asked, and there is
	resumes bool                     // there were bytes of an earlier attempt
	brought atomic.Int64             // bytes of layers
	far     status.Progress          // as told last
	before  map[string]*images.Image // how the records were; nil: none
}

func newJob(r release.Release, t node.StageOptions) *job {
	return &job{release: r, ref: digestName(r), terms: t}
}

// tell passes on how far it is. It is called from one goroutine at a time.
func (j *job) tell(p status.Progress) {
	j.far = p
	if j.terms.Progress != nil {
		j.terms.Progress(p)
	}
}

func (j *job) bring(n int) { j.brought.Add(int64(n)) }

// errTimeout ends a staging that takes too long.
var errTimeout = errors.New("not done within the time")

// run stages, beginning with a session that it closes, within the time for it.
func (s *Store) run(ctx context.Context, c *session, j *job) error {
	ctx, cancel := context.WithTimeoutCause(ctx, s.timeout, errTimeout)
	defer cancel()
	err := s.survive(ctx, c, j)
	if err != nil && errors.Is(context.Cause(ctx), errTimeout) {
		return fmt.Errorf("%w of %s, at %d of %d bytes: %w", errTimeout, s.timeout, j.far.Done, j.far.Total, err)
	}
	return err
}

// survive goes on when containerd has been restarted meanwhile. What was fetched
// before is there again then: it is on the disk, under our lease.
func (s *Store) survive(ctx context.Context, c *session, j *job) error {
	for restarts := 0; ; restarts++ {
		err := c.attempt(ctx, j)
		if !isPassing(err) || ctx.Err() != nil || restarts == maxRestarts {
			err = c.finish(ctx, j, err)
			c.close()
			if err != nil && restarts > 0 {
				err = fmt.Errorf("after %d restarts: %w", restarts, err)
			}
			return err
		}
		c.close()
		s.log.Info("containerd: waiting for its return", "release", j.ref, "error", err)
		if c, err = s.reopen(ctx); err != nil {
			return err
		}
	}
}

// attempt is the part of a staging that one connection carries.
func (c *session) attempt(ctx context.Context, j *job) (err error) {
	ctx, cancel := c.link.while(ctx)
	defer cancel()
	defer func() {
		if err != nil && c.link.isGone() {
			err = fmt.Errorf("%w: %w", errGone, err)
		}
	}()
	if ctx, err = c.lease(ctx, j); err != nil {
		return err
	}
	if err := c.remember(ctx, j); err != nil {
		return err
	}
	return c.stage(ctx, j)
}

// finish leaves the node as a staging that ended so has to.
func (c *session) finish(ctx context.Context, j *job, err error) error {
	ctx, cancel := cleanup(ctx)
	defer cancel()
	err = named(err)
	if c.link.isGone() {
		return err // with nobody there to tell
	}
	if err != nil {
		c.undo(ctx, j)
	}
	c.endLeases(ctx, j, err)
	return err
}

// reopen waits for a containerd that has gone away.
func (s *Store) reopen(ctx context.Context) (*session, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, s.patience, errAway)
	defer cancel()
	tick := time.NewTicker(lookInterval)
	defer tick.Stop()
	var why error
	for {
		c, err := s.answering(ctx)
		switch {
		case err == nil:
			return c, nil
		case why == nil || !errors.Is(err, context.DeadlineExceeded): // which is only that time is up
			why = err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", context.Cause(ctx), why)
		}
	}
}

// errAway ends the wait.
var errAway = fmt.Errorf("went away in the middle of a pull, not back after %s", patience)

// answering is a session with a containerd that does more than to listen.
func (s *Store) answering(ctx context.Context) (*session, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	c, err := s.open(ctx)
	if err != nil {
		return nil, err
	}
	_, err = c.client.Version(ctx)
	if err == nil {
		_, err = c.snapshotterName(ctx) // CRI is ready a moment later
	}
	if err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}
