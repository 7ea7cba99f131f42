// SPDX-License-Identifier: Apache-2.0

// Package grains says in /etc/salt/grains what the agent offers.
//
// Words: a grain is a fact about the node that Salt's minion hands to its
// master; the grains file is a YAML mapping of the static ones, each a
// top-level key. Some of them are ours (see Grain), all others are foreign; one is
// ours at times (see reboot).
//
// The file has other writers (Salt itself, transactional-update, setup
// scripts), all of which rewrite it in place and take no lock. If Salt cannot
// read it, it drops every grain of the node without a word, roles included.
// Hence the promises:
//
//   - Only the lines of our own keys are written, and only if their meaning
//     changes; every other byte is kept. The result is parsed again under
//     Salt's rules before it takes the file's name.
//   - A file that Salt cannot read, or that is laid out so that whole lines
//     cannot be edited, is left alone (ErrRefused).
//   - What another program had written and closed before our last look, right
//     before the rename, is never lost; one that has the file open for writing
//     then makes us wait. Left is the instant of the rename itself: who opens
//     the file then writes into the old one. Salt, in turn, writes back what it
//     had read earlier and so may drop our keys: Announce is therefore repeated
//     each cycle.
//   - While a grain says that the cluster is being updated or a node removed,
//     nothing is written (ErrHeld).
//   - A file that is not there is created only where Salt is in use: not
//     without its directory, not where salt-minion is disabled, and not if we
//     have seen the file before, because removing a node from the cluster deletes
//     it (ErrNoSalt).
package grains

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/kubic-project/image-update-agent/internal/nodefile"
	"github.com/kubic-project/image-update-agent/internal/wait"
	"github.com/kubic-project/image-update-agent/internal/yamledit"
)

var (
	// ErrHeld tells that a grain forbids writing now; the text names it.
	ErrHeld = errors.New("held")
	// ErrRefused tells that the file is not one that can be edited safely; the
	// text says why. It was not touched.
	ErrRefused = errors.New("not edited")
	// ErrNoSalt tells that there is no grains file and that none shall be
	// created; the text says why.
	ErrNoSalt = errors.New("no grains file")
)

const (
	// attempts and firstPause bound how long other writers are given way: Salt
	// rewrites the file in milliseconds, six attempts span 1.5 s.
	attempts   = 6
	firstPause = 50 * time.Millisecond
	// newFileMode is that of a file which Salt itself creates.
	newFileMode = 0o644
)

// Store is the grains file of one node.
type Store struct {
	root, path string
	logger     *slog.Logger
	seen       atomic.Bool // the file has been there in this process's time
}

// New returns the store of the file at path, in which salt-minion reads its static grains (salt/grains/extra.py), taken
// relative to root, the directory that stands for "/".
func New(root, path string, logger *slog.Logger) *Store {
	return &Store{root: root, path: filepath.Join(root, path), logger: logger}
}

// Announce makes our keys say g and tells whether it had to write. Besides
// ErrHeld, ErrRefused and ErrNoSalt, an nodefile.ErrConflict means that other
// writers did not let go of the file in time.
func (s *Store) Announce(ctx context.Context, g Grain) (changed bool, err error) {
	if g, err = g.normalized(); err != nil {
		return false, fmt.Errorf("grains: %w", err)
	}
	changed, err = s.write(ctx, func(doc document) ([]byte, error) { return doc.edit(g) })
	if changed {
		s.logger.InfoContext(ctx, "grain written",
			"file", s.path, "available", g.Available, "state", g.State, "count", g.Count)
	}
	return changed, err
}

// Withdraw takes back a reboot that Velum was asked for, and leaves all else as it
// is: for who does not announce any more. Its errors are Announce's.
func (s *Store) Withdraw(ctx context.Context) error {
	changed, err := s.write(ctx, document.withdraw)
	if changed {
		s.logger.InfoContext(ctx, "reboot no more asked for", "file", s.path)
	}
	return err
}

// Sweep removes the temporary files that a crash left beside the grains file. Call
// it once at the start, under the lock that keeps a second agent out.
func (s *Store) Sweep(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	dir, err := s.open()
	if errors.Is(err, ErrNoSalt) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("grains: %w", err)
	}
	if err := errors.Join(dir.Sweep(), dir.Close()); err != nil {
		return fmt.Errorf("grains: %w", err)
	}
	return nil
}

// write makes an edit, which gives nil where there is nothing to write. Other
// writers are given way.
func (s *Store) write(ctx context.Context, edit func(document) ([]byte, error)) (changed bool, err error) {
	for attempt := range attempts {
		if attempt > 0 {
			if pauseErr := wait.For(ctx, firstPause<<(attempt-1)); pauseErr != nil {
				return false, errors.Join(pauseErr, err)
			}
		}
		changed, err = s.attempt(ctx, edit)
		if !errors.Is(err, nodefile.ErrConflict) {
			break
		}
	}
	if err != nil {
		return changed, fmt.Errorf("grains: %w", err)
	}
	return changed, nil
}

// Busy names the grain that asks everybody to keep still, "" if none does. A
// file that is not there asks nothing.
func (s *Store) Busy(ctx context.Context) (reason string, err error) {
	dir, err := s.open()
	if errors.Is(err, ErrNoSalt) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("grains: %w", err)
	}
	defer func() { _ = dir.Close() }()
	_, doc, err := s.read(ctx, dir)
	if err != nil {
		return "", fmt.Errorf("grains: %w", err)
	}
	return doc.busy(), nil
}

// attempt is one of them.
func (s *Store) attempt(ctx context.Context, edit func(document) ([]byte, error)) (bool, error) {
	dir, err := s.open()
	if err != nil {
		return false, err
	}
	defer func() { _ = dir.Close() }()
	file, doc, err := s.read(ctx, dir)
	if err != nil {
		return false, err
	}
	if !file.Exists() {
		if err := s.mayCreate(); err != nil {
			return false, err
		}
	}
	if reason := doc.busy(); reason != "" {
		return false, fmt.Errorf("%s: %w: %s is true", s.path, ErrHeld, reason)
	}
	data, err := edit(doc)
	if err != nil {
		return false, fmt.Errorf("%s: %w: %w", s.path, ErrRefused, err)
	}
	if data == nil {
		return false, nil
	}
	return dir.Write(filepath.Base(s.path), data, nodefile.Options{Mode: newFileMode, Expect: &file})
}

func (s *Store) open() (*nodefile.Dir, error) {
	dir, err := nodefile.OpenDir(filepath.Dir(s.path))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%s: %w: its directory does not exist", s.path, ErrNoSalt)
	case errors.Is(err, nodefile.ErrUnsafe):
		return nil, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	return dir, err
}

// read reads and checks the file. One that is empty or not accepted may be in
// the middle of being rewritten, so it is read again until it stays the same.
func (s *Store) read(ctx context.Context, dir *nodefile.Dir) (nodefile.File, document, error) {
	var before nodefile.File
	for attempt := 0; ; attempt++ {
		file, err := dir.Read(filepath.Base(s.path), yamledit.MaxBytes)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return file, document{}, nil
		case errors.Is(err, nodefile.ErrUnsafe), errors.Is(err, nodefile.ErrTooLarge):
			return file, document{}, fmt.Errorf("%w: %w", ErrRefused, err)
		case err != nil:
			return file, document{}, err
		}
		s.seen.Store(true)
		doc, err := parse(file.Data)
		if err == nil && len(file.Data) > 0 {
			return file, doc, nil
		}
		if file.Same(before) || attempt == attempts-1 {
			if err != nil {
				err = fmt.Errorf("%s: %w: %w", s.path, ErrRefused, err)
			}
			return file, doc, err
		}
		before = file
		if err := wait.For(ctx, firstPause); err != nil {
			return file, document{}, err
		}
	}
}
