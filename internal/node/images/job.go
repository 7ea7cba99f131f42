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
	// reconnectTimeout is how long a pull waits for containerd after it stopped.
	reconnectTimeout = 30 * time.Second
	// reconnectInterval is the time between attempts. An update of containerd takes a
	// second.
	reconnectInterval = 250 * time.Millisecond
	// readyTimeout is how long to wait for a containerd that accepts connections but is not ready yet.
	readyTimeout = 5 * time.Second
	// maxRestarts limits the restarts of containerd in one staging: the agent's requests may be what makes it crash.
	maxRestarts = 3
)

// job is the state of one call of Stage, across connections to containerd.
type job struct {
	release release.Release
	ref     string // repository@digest
	options node.StageOptions

	spaceGranted bool                     // CheckSpace was called without an error
	resumes      bool                     // an earlier attempt left bytes
	fetched      atomic.Int64             // bytes of layers
	progress     status.Progress          // as last reported
	previous     map[string]*images.Image // the records before staging; a nil value means none
}

func newJob(r release.Release, o node.StageOptions) *job {
	return &job{release: r, ref: digestName(r), options: o}
}

// report reports the progress. It is called from one goroutine at a time.
func (j *job) report(p status.Progress) {
	j.progress = p
	if j.options.Progress != nil {
		j.options.Progress(p)
	}
}

func (j *job) addFetched(n int) { j.fetched.Add(int64(n)) }

var errTimeout = errors.New("timed out")

// run stages within the timeout. It closes the session c.
func (s *Store) run(ctx context.Context, c *session, j *job) error {
	ctx, cancel := context.WithTimeoutCause(ctx, s.timeout, errTimeout)
	defer cancel()
	err := s.runAttempts(ctx, c, j)
	if err != nil && errors.Is(context.Cause(ctx), errTimeout) {
		return fmt.Errorf("%w of %s, at %d of %d bytes: %w", errTimeout, s.timeout, j.progress.Done, j.progress.Total, err)
	}
	return err
}

// runAttempts stages again after a restart of containerd. The lease has kept the fetched content.
func (s *Store) runAttempts(ctx context.Context, c *session, j *job) error {
	for restarts := 0; ; restarts++ {
		err := c.attempt(ctx, j)
		if !isTransient(err) || ctx.Err() != nil || restarts == maxRestarts {
			err = c.finish(ctx, j, err)
			c.close()
			if err != nil && restarts > 0 {
				err = fmt.Errorf("after %d restarts: %w", restarts, err)
			}
			return err
		}
		c.close()
		s.log.Info("waiting for the restart of containerd", "release", j.ref, "error", err)
		if c, err = s.reconnect(ctx); err != nil {
			return err
		}
	}
}

// attempt stages over one connection.
func (c *session) attempt(ctx context.Context, j *job) (err error) {
	ctx, cancel := c.link.bind(ctx)
	defer cancel()
	defer func() {
		if err != nil && c.link.isLost() {
			err = fmt.Errorf("%w: %w", errConnectionLost, err)
		}
	}()
	if ctx, err = c.lease(ctx, j); err != nil {
		return err
	}
	if err := c.saveRecords(ctx, j); err != nil {
		return err
	}
	return c.stage(ctx, j)
}

// finish restores the records after an error, and deletes or keeps the leases.
func (c *session) finish(ctx context.Context, j *job, err error) error {
	ctx, cancel := cleanup(ctx)
	defer cancel()
	err = withKind(err)
	if c.link.isLost() {
		return err
	}
	if err != nil {
		c.restoreRecords(ctx, j)
	}
	c.endLeases(ctx, j, err)
	return err
}

// reconnect waits for containerd after it stopped.
func (s *Store) reconnect(ctx context.Context) (*session, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, s.reconnectTimeout, errAway)
	defer cancel()
	tick := time.NewTicker(reconnectInterval)
	defer tick.Stop()
	var cause error
	for {
		c, err := s.openReady(ctx)
		switch {
		case err == nil:
			return c, nil
		case cause == nil || !errors.Is(err, context.DeadlineExceeded): // the deadline is not the cause
			cause = err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", context.Cause(ctx), cause)
		}
	}
}

var errAway = fmt.Errorf("stopped during a pull, and did not restart within %s", reconnectTimeout)

// openReady opens a session with a containerd that answers.
func (s *Store) openReady(ctx context.Context) (*session, error) {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
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
