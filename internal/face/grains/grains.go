// SPDX-License-Identifier: Apache-2.0

// Package grains writes the agent's offers to /etc/salt/grains.
//
// Words: a grain is a fact about the node that Salt's minion sends to its master; the grains file is a YAML mapping of
// the static ones, each a top-level key. Some of them belong to the agent (see Grain), one sometimes does (see reboot),
// all others are foreign.
//
// The file has other writers (Salt itself, transactional-update, setup scripts), all of which rewrite it in place
// without locks. If Salt cannot read it, it silently drops every grain of the node, including roles. Hence the
// promises:
//
//   - Only the lines of the agent's keys are written, and only if their meaning changes; every other byte is kept. The
//     result is parsed again under Salt's rules before the rename.
//   - A file that Salt cannot read, or whose layout does not allow to edit whole lines, is not touched (ErrRefused).
//   - Data that another program had written and closed before the last check, right before the rename, is never lost;
//     the
//     agent waits for a program that has the file open for writing then. The instant of the rename itself remains: a
//     program that opens the file then writes into the old one. Salt, in turn, writes back what it had read earlier and
//     so may drop the agent's keys: Announce is therefore repeated each cycle.
//   - While a grain says that the cluster is being updated or a node removed, nothing is written (ErrHeld).
//   - A missing file is created only if Salt is in use: not without its directory, not if salt-minion is disabled, and
//     not if the agent has seen the file before, because removing a node from the cluster deletes it (ErrNoSalt).
package grains

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/base/nodefile"
	"github.com/kubic-project/image-update-agent/internal/base/wait"
	"github.com/kubic-project/image-update-agent/internal/base/yamledit"
)

var (
	// ErrHeld says that a grain forbids writing now; the text names it.
	ErrHeld = errors.New("held")
	// ErrRefused says that the file cannot be edited safely; the text has the reason. The file was not touched.
	ErrRefused = errors.New("not edited")
	// ErrNoSalt says that there is no grains file and that none may be created; the text has the reason.
	ErrNoSalt = errors.New("cannot find the grains file")
)

const (
	// attempts and firstPause limit how long the agent waits for other writers: Salt rewrites the file in milliseconds,
	// six attempts span 1.5 s.
	attempts   = 6
	firstPause = 50 * time.Millisecond
	// newFileMode is the mode of a file created by Salt.
	newFileMode = 0o644
)

// Store is the grains file of one node.
type Store struct {
	root, path string
	logger     *slog.Logger
	seen       atomic.Bool // the file has existed during this process
}

// New returns the store of the file at path, from which salt-minion reads its static grains (salt/grains/extra.py).
// salt-minion's units are below root; empty: the host's.
func New(root, path string, logger *slog.Logger) *Store {
	return &Store{root: filepath.Join("/", root), path: path, logger: logger}
}

// Announce sets the agent's keys to g and reports whether it had to write. Besides ErrHeld, ErrRefused and ErrNoSalt, a
// nodefile.ErrConflict means that other writers did not close the file in time.
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

// Withdraw removes a reboot request to Velum and keeps everything else: for an agent that no longer announces. Its
// errors are Announce's.
func (s *Store) Withdraw(ctx context.Context) error {
	changed, err := s.write(ctx, document.withdraw)
	if changed {
		s.logger.InfoContext(ctx, "reboot no longer requested", "file", s.path)
	}
	return err
}

// Sweep removes temporary files that a crash left next to the grains file. Call it once at the start, while holding the
// lock against other agents.
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

// write applies an edit, which returns nil if there is nothing to write. It gives way to other writers.
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

// Busy returns the busy grain, "" if there is none. A missing file has none.
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

// attempt is one attempt of write.
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

// read reads and checks the file. An empty or rejected file may be in the middle of a rewrite, so it is read again
// until it stays the same.
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

// Announcer announces updates through the grains file. It implements agent.Announcer.
type Announcer struct {
	Store *Store
	Velum bool
	// Changed is called when the file has changed.
	Changed func(context.Context)
}

// Announce implements agent.Announcer.
func (a Announcer) Announce(ctx context.Context, what status.Announcement) error {
	g := Grain{
		Available: len(what.Updates) > 0, State: what.State, Reason: what.Reason, Count: len(what.Updates), Velum: a.Velum,
	}
	for _, u := range what.Updates {
		g.Updates = append(g.Updates, Update{
			Image: u.Image, Change: u.Change, From: u.From, To: u.To, Digest: u.Digest.String(),
			Severity: string(u.Severity), Fixes: fitting(u.Fixes),
		})
	}
	for _, n := range what.NotAllowed {
		g.NotAllowed = append(g.NotAllowed, NotAllowed{Image: n.Image, Tag: n.Tag, Rule: n.Rule, Key: n.Key})
	}
	changed, err := a.Store.Announce(ctx, g)
	if changed {
		a.Changed(ctx)
	}
	return announced(err)
}

// fitting joins names as long as a grain has room for them.
func fitting(names []string) string {
	var out strings.Builder
	for _, name := range names {
		if out.Len()+1+len(name) > maxText {
			break
		}
		out.WriteString(" " + name)
	}
	return strings.TrimPrefix(out.String(), " ")
}

// Busy implements agent.Announcer.
func (a Announcer) Busy(ctx context.Context) (string, error) { return a.Store.Busy(ctx) }

// announced converts an error of the grains file to one of the agent.
func announced(err error) error {
	switch {
	case errors.Is(err, ErrHeld):
		return fmt.Errorf("%w: %w", release.ErrHeld, err)
	case errors.Is(err, ErrNoSalt):
		return nil // a node without Salt has no grains
	default:
		return err
	}
}

// Silent is an Announcer that announces nothing, and withdraws a reboot request from before grains were turned off.
type Silent struct{ Store *Store }

// Announce implements agent.Announcer.
func (s Silent) Announce(ctx context.Context, _ status.Announcement) error {
	err := s.Store.Withdraw(ctx)
	if errors.Is(err, ErrRefused) {
		return nil // an unreadable file has no keys of the agent, and grains are turned off
	}
	return announced(err)
}

// Busy implements agent.Announcer.
func (Silent) Busy(context.Context) (string, error) { return "", nil }

// AtBoot is an Announcer on a node whose reboot may be part of the update that owns it: Salt sets the grain, reboots,
// and removes it when the pods are up.
type AtBoot struct{ Announcer }

// Busy implements agent.Announcer.
func (b AtBoot) Busy(ctx context.Context) (string, error) {
	name, err := b.Store.Busy(ctx)
	if Reboots(name) {
		return "", err
	}
	return name, err
}
