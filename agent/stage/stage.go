// SPDX-License-Identifier: Apache-2.0

// Package stage stages releases: it verifies their signatures, pulls and pins them, and checks that kubelet will find
// them. Space reserves disk space for concurrent pulls. The package returns results and makes no decisions.
//
// Manifests do not say how large layers unpack: 2 to 2.8 times was measured. So unpacked bytes count 3 times with gzip,
// 4 with zstd or an unknown type, once uncompressed; a nearly full node may hold what would have fitted.
package stage

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"time"

	"github.com/opencontainers/go-digest"
	"golang.org/x/sync/errgroup"

	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/base/wait"
)

// listTimeout is how long CRI may take to list a staged image. CRI receives an event for it,
// which is late on a busy node.
const listTimeout = 10 * time.Second

const listInterval = 500 * time.Millisecond

// Stager stages releases.
type Stager struct {
	Images     node.ImageStore
	CRI        node.ImageService
	Signatures *SignatureChecker
	Space      *Space
	Meter      StagingMeter // nil: pulls are not counted
	Policy     policy.Policy
	Log        *slog.Logger
	Progress   *status.Reporter
}

// StageAll stages releases, several at a time, and returns their errors. It verifies them one
// after another, because the record is not safe for concurrent use.
func (s *Stager) StageAll(ctx context.Context, releases []release.Release) []error {
	var pulls errgroup.Group
	pulls.SetLimit(max(1, s.Policy.MaxParallelStages))
	ended := make([]error, len(releases))
	for n, r := range releases {
		if ended[n] = ctx.Err(); ended[n] != nil {
			continue
		}
		if ended[n] = s.Signatures.Verify(ctx, r); ended[n] != nil {
			continue
		}
		pulls.Go(func() error {
			ended[n] = s.Stage(ctx, r)
			return nil
		})
	}
	_ = pulls.Wait() // the errors are in ended
	for n, r := range releases {
		if errors.Is(ended[n], errCrowded) {
			ended[n] = s.Stage(ctx, r)
		}
	}
	return ended
}

// Stage pulls a release and checks that kubelet will find it.
func (s *Stager) Stage(ctx context.Context, r release.Release) error {
	if err := s.pull(ctx, r); err != nil {
		phase := status.PhaseFailed
		if ctx.Err() != nil {
			phase = status.PhaseInterrupted
		}
		s.Progress.Report(status.Progress{Reference: r.StagedName(), Phase: phase})
		return err
	}
	id, err := s.AwaitListed(ctx, r.StagedName())
	if err == nil && r.Config != "" && id != r.Config {
		err = fmt.Errorf("%s: cri lists image id %s instead of %s", r.StagedName(), id, r.Config)
	}
	return err
}

// spacePatience is how long CRI may be unavailable, and spaceInterval the time between queries.
const (
	spacePatience = time.Minute
	spaceInterval = time.Second
)

// filesystem queries CRI for the image filesystem until it answers: a pull survives a restart of containerd. If a
// sandbox hides the filesystem from the agent, it returns zero instead of an error that would hold each pull forever; a
// pull that fills it cleans up after itself.
func (s *Stager) filesystem(ctx context.Context) (policy.Filesystem, error) {
	for end := time.Now().Add(spacePatience); ; {
		disk, err := s.CRI.Filesystem(ctx)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return policy.Filesystem{}, nil
		case err == nil, !time.Now().Before(end), wait.For(ctx, spaceInterval) != nil:
			return disk, err
		}
	}
}

// pull pulls a release if there is space for it.
func (s *Stager) pull(ctx context.Context, r release.Release) error {
	key := release.Key(r.Repository, r.Digest)
	stop := s.Progress.Heartbeat()
	err := s.Images.Stage(ctx, r, node.StageOptions{
		Progress: s.Progress.Report,
		CheckSpace: func(ctx context.Context, n policy.SpaceNeeded) error {
			disk, err := s.filesystem(ctx)
			if err != nil {
				return fmt.Errorf("%w: free space unknown: %w", release.ErrHeld, err)
			}
			return s.Space.reserve(key, n, disk, s.Policy.Reserve)
		},
	})
	stop()
	if errors.Is(err, release.ErrNoSpace) {
		err = s.Space.overflowed(key, FilesystemOf(ctx, s.CRI, s.Log), s.Policy.Reserve, err)
	}
	s.Space.release(key, err)
	// StageAll retries a crowded pull, which is counted then.
	if s.Meter != nil && ctx.Err() == nil && !errors.Is(err, errCrowded) {
		s.Meter.Staged(err)
	}
	return err
}

// AwaitListed queries CRI until it lists an image or listTimeout has passed, and returns the image id.
func (s *Stager) AwaitListed(ctx context.Context, name string) (digest.Digest, error) {
	end := time.NewTimer(listTimeout)
	defer end.Stop()
	tick := time.NewTicker(listInterval)
	defer tick.Stop()
	for {
		id, listed, err := s.CRI.Lists(ctx, name)
		switch {
		case err != nil:
			return "", fmt.Errorf("%s: cri: %w", name, err)
		case listed:
			return id, nil
		}
		select {
		case <-ctx.Done():
			return "", fmt.Errorf("%s: cri: %w", name, ctx.Err())
		case <-end.C:
			return "", fmt.Errorf("%s: staged, but CRI does not list it after %s", name, listTimeout)
		case <-tick.C:
		}
	}
}

// StagingMeter counts pulls.
type StagingMeter interface {
	// Staged counts a finished pull. ErrHeld means that it waits.
	Staged(err error)
}
