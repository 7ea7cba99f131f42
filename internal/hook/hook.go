// SPDX-License-Identifier: Apache-2.0

// Package hook tells programs of the admin what has changed.
//
// Words: the announcement is what stands on the node, as far as it is told: its
// state, what its containers run, what is offered and staged, what did not work.
// A change is what lies between two announcements. A hook is what is run for one.
//
// Hooks never run in the daemon, which is hardened and must not wait for anybody.
// The daemon keeps the announcement in its runtime directory, and beside it, where
// a hook is configured, makes an empty file, the due file, whenever there is
// something to run it for. A path
// unit sees that file and starts the hook's own service, which takes it away first
// and reads the announcement afterwards. So whatever comes while a hook runs makes
// one more run of it, with the newest, and a hook that is slow or hangs is nobody
// else's trouble (docs/dev/decisions/0071).
//
// What a hook has been told is kept. The next change is counted from there: nothing
// is left out because two changes came in one, or because a hook has failed.
//
// All is bounded in size, and has no secret: it is taken from the status, which is
// everybody's to read.
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

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/internal/atomicfile"
)

// UnitDir is where image-update-agent-hook.path looks for what is due, below the root.
const UnitDir = "run/image-update-agent"

const (
	// announcementFile is in the runtime directory, for everybody.
	announcementFile = "announcement.json"
	// DueFile is in the runtime directory; the path unit names it.
	DueFile = "hook.due"
	// toldFile is in the state directory: the announcement that the hook was told
	// last. It outlives a reboot, so that what happened at one is told.
	toldFile = "hook.json"

	// maxSize bounds the files, in bytes. See maxImages and maxText.
	maxSize = 4 << 20
)

// Desk is where the daemon leaves word, and where it is found. Safe for concurrent
// use.
type Desk struct {
	stateDir, runtimeDir string

	mu   sync.Mutex
	last *Announcement // nil: not read yet
}

// New names the directories, which are made when something is written.
func New(stateDir, runtimeDir string) *Desk {
	return &Desk{stateDir: stateDir, runtimeDir: runtimeDir}
}

// Announce keeps what is to be told of a status, and asks for a run of the hook.
// Where that is what it was before, nothing is written and nobody is woken.
func (d *Desk) Announce(ctx context.Context, s agent.Status) error {
	return d.keep(ctx, s, d.due)
}

// Note keeps it, and wakes nobody: for a node without hooks, which may have some
// later.
func (d *Desk) Note(ctx context.Context, s agent.Status) error {
	return d.keep(ctx, s, func() error { return nil })
}

func (d *Desk) keep(ctx context.Context, s agent.Status, wake func() error) error {
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
	if now.same(*last) && (d.last != nil || !d.untold(now)) {
		d.last = last
		return nil
	}
	if err := write(d.runtimeDir, announcementFile, now, 0o644); err != nil {
		return fmt.Errorf("hook: %w", err)
	}
	if err := wake(); err != nil {
		return err
	}
	d.last = &now
	return nil
}

// untold tells whether the hook has not heard of it yet: a daemon before this one may
// have been killed before it asked for a run.
func (d *Desk) untold(now Announcement) bool {
	before, _ := read(d.stateDir, toldFile) // as in Change
	return !now.after(before).since(before).Empty()
}

// Due asks for a run of the hook, as what is told elsewhere has changed.
func (d *Desk) Due(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return d.due()
}

func (d *Desk) due() error {
	dir, err := open(d.runtimeDir)
	if err != nil {
		return fmt.Errorf("hook: %w", err)
	}
	defer func() { _ = dir.Close() }()
	if _, err := dir.Write(DueFile, nil, atomicfile.Options{Mode: 0o644}); err != nil {
		return fmt.Errorf("hook: %w", err)
	}
	return nil
}

// Take takes the due file away; that there is none is no error. Whatever comes from
// here on asks for another run.
func (d *Desk) Take() error {
	err := os.Remove(filepath.Join(d.runtimeDir, DueFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("hook: %w", err)
	}
	return nil
}

// Change is what lies between what the hook was told last and now. told keeps now
// as what it was told.
func (d *Desk) Change() (c Change, told func() error, err error) {
	now, err := read(d.runtimeDir, announcementFile)
	if err != nil {
		return Change{}, nil, fmt.Errorf("hook: %w", err)
	}
	before, _ := read(d.stateDir, toldFile) // what cannot be read was of another version, say: all is new
	if now.SchemaVersion == 0 {             // since the boot the daemon has not looked yet
		now = before
	}
	now = now.after(before) // the daemon's own memory does not outlive a boot
	return now.since(before), func() error {
		if err := write(d.stateDir, toldFile, now.carrying(before), 0o600); err != nil {
			return fmt.Errorf("hook: %w", err)
		}
		return nil
	}, nil
}

// read gives the zero announcement where there is none.
func read(dir, name string) (Announcement, error) {
	d, err := atomicfile.OpenDir(dir)
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
	_, err = d.Write(name, append(data, '\n'), atomicfile.Options{Mode: mode})
	return err
}

func open(dir string) (*atomicfile.Dir, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	return atomicfile.OpenDir(dir)
}
