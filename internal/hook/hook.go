// SPDX-License-Identifier: Apache-2.0

// Package hook reports changes of the node to programs of the admin.
//
// Words: an announcement is the part of the status that hooks get: the node's state,
// what its containers run, what is offered and staged, what did not work. A change
// is the difference between two announcements. A hook is a program that runs for one.
//
// Hooks never run in the daemon, which is hardened and must not wait for them. The
// daemon writes the announcement into its runtime directory, and beside it, where a
// hook is configured, an empty file, the due file, for each change. A path unit sees
// that file and starts the hook's own service, which removes it first and reads the
// announcement afterwards. A change that comes while a hook runs causes one more run,
// with the newest announcement; a slow hook delays nothing else
// (docs/dev/decisions/0071).
//
// The announcement that a hook was given last is kept, and the next change counts
// from there: nothing is lost when two changes come as one, or when a hook fails.
//
// All is bounded in size, and has no secret: the status, which is public, has it.
package hook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/nodefile"
)

// UnitDir is where image-update-agent-hook.path looks for what is due, below the root.
const UnitDir = "run/image-update-agent"

const (
	// announcementFile is in the runtime directory, for everybody.
	announcementFile = "announcement.json"
	// DueFile is in the runtime directory; the path unit names it.
	DueFile = "hook.due"
	// deliveredFile is in the state directory: the announcement that the hook was given
	// last. It outlives a reboot, so that changes at boot are reported.
	deliveredFile = "hook.json"

	// maxSize bounds the files, in bytes. See maxImages and maxText.
	maxSize = 4 << 20
)

// Outbox is where the daemon leaves announcements for hooks. Safe for concurrent use.
type Outbox struct {
	stateDir, runtimeDir string

	mu   sync.Mutex
	last *Announcement // nil: not read yet
}

// New names the directories, which are made when something is written.
func New(stateDir, runtimeDir string) *Outbox {
	return &Outbox{stateDir: stateDir, runtimeDir: runtimeDir}
}

// Announce writes the announcement of a status, and requests a run of the hook. Where
// nothing has changed, it does neither.
func (d *Outbox) Announce(ctx context.Context, s status.Status) error {
	return d.write(ctx, s, d.due)
}

// Note writes the announcement and requests no run: for a node without hooks, which may
// have some later.
func (d *Outbox) Note(ctx context.Context, s status.Status) error {
	return d.write(ctx, s, func() error { return nil })
}

func (d *Outbox) write(ctx context.Context, s status.Status, request func() error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	last := d.last
	if last == nil {
		kept, err := read(d.runtimeDir, announcementFile)
		if err != nil {
			kept = Announcement{} // what cannot be read is written anew
		}
		last = &kept
	}
	now := announce(s, *last)
	if now.same(*last) && (d.last != nil || !d.isPending(now)) {
		d.last = last
		return nil
	}
	if err := write(d.runtimeDir, announcementFile, now, 0o644); err != nil {
		return fmt.Errorf("hook: %w", err)
	}
	if err := request(); err != nil {
		return err
	}
	d.last = &now
	return nil
}

// isPending reports whether the hook was not given it yet: a daemon before this one may
// have been killed before it requested a run.
func (d *Outbox) isPending(now Announcement) bool {
	before, _ := read(d.stateDir, deliveredFile) // as in Change
	return !now.after(before).since(before).Empty()
}

// Due requests a run of the hook for a change elsewhere: of the grains.
func (d *Outbox) Due(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return d.due()
}

func (d *Outbox) due() error {
	dir, err := open(d.runtimeDir)
	if err != nil {
		return fmt.Errorf("hook: %w", err)
	}
	defer func() { _ = dir.Close() }()
	if _, err := dir.Write(DueFile, nil, nodefile.Options{Mode: 0o644}); err != nil {
		return fmt.Errorf("hook: %w", err)
	}
	return nil
}

// Take removes the due file; that there is none is no error. A later change requests
// another run.
func (d *Outbox) Take() error {
	err := os.Remove(filepath.Join(d.runtimeDir, DueFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("hook: %w", err)
	}
	return nil
}

// Change is the difference between the announcement that the hook was given last and now.
// delivered records now as given.
func (d *Outbox) Change() (c Change, delivered func() error, err error) {
	now, err := read(d.runtimeDir, announcementFile)
	if err != nil {
		return Change{}, nil, fmt.Errorf("hook: %w", err)
	}
	before, _ := read(d.stateDir, deliveredFile) // what cannot be read was of another version, say: all is new
	if now.SchemaVersion == 0 {                  // since the boot the daemon has not observed the node yet
		now = before
	}
	now = now.after(before) // what the daemon knows does not outlive a boot
	return now.since(before), func() error {
		if err := write(d.stateDir, deliveredFile, now.withLastRunning(before), 0o600); err != nil {
			return fmt.Errorf("hook: %w", err)
		}
		return nil
	}, nil
}

// read gives the zero announcement where there is none.
func read(dir, name string) (Announcement, error) {
	d, err := nodefile.OpenDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return Announcement{}, nil
	}
	if err != nil {
		return Announcement{}, err
	}
	defer func() { _ = d.Close() }()
	file, err := d.Read(name, maxSize)
	if errors.Is(err, fs.ErrNotExist) {
		return Announcement{}, nil
	}
	var a Announcement
	if err == nil {
		err = json.Unmarshal(file.Data, &a)
	}
	if err == nil && a.SchemaVersion != SchemaVersion {
		err = fmt.Errorf("schema version %d, this agent knows %d", a.SchemaVersion, SchemaVersion)
	}
	if err != nil {
		return Announcement{}, fmt.Errorf("%s: %w", filepath.Join(dir, name), err)
	}
	return a, nil
}

func write(dir, name string, a Announcement, mode fs.FileMode) error {
	data, err := json.MarshalIndent(a, "", "  ")
	if err != nil {
		return err
	}
	d, err := open(dir)
	if err != nil {
		return err
	}
	defer func() { _ = d.Close() }()
	_, err = d.Write(name, append(data, '\n'), nodefile.Options{Mode: mode})
	return err
}

func open(dir string) (*nodefile.Dir, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	return nodefile.OpenDir(dir)
}
