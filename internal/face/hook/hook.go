// SPDX-License-Identifier: Apache-2.0

// Package hook reports changes of the node to programs of the admin.
//
// Words: an announcement is the part of the status for hooks: the node's state, running, offered and staged releases,
// and failures. A change is the difference between two announcements. A hook is a program that runs for a change, or a
// webhook, a server that receives it. A consumer has its own last delivered announcement: each webhook is one, and all
// programs together are one.
//
// Hooks never run in the daemon, which is hardened and must not wait for them. The daemon writes the announcement to
// its runtime directory and, if a hook is configured, creates an empty file next to it for each change, the due file. A
// path unit watches that file and starts the hook's service, which first removes it and then reads the announcement. A
// change during a run causes one more run, with the newest announcement; a slow hook does not delay the daemon
// (docs/dev/decisions/0071).
//
// The next change is computed from the last announcement that was delivered: nothing is lost if two changes are
// combined, or if a hook fails. The service records a failure, and the daemon requests another run, with a growing
// delay.
//
// The size of all data is limited. It contains no secrets, because it is part of the public status.
//
// Why webhooks have two forms and no template: text/template looks methods up by computed names, and then Go's linker
// keeps every exported method, 5.1 MB. For other documents there is a program.
package hook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/base/nodefile"
)

// UnitDir is the directory that image-update-agent-hook.path watches, below the root.
const UnitDir = "run/image-update-agent"

const (
	// announcementFile is in the runtime directory, readable by all users.
	announcementFile = "announcement.json"
	// DueFile is in the runtime directory; the path unit names it.
	DueFile = "hook.due"

	// Programs is the name of the consumer for event and program; the others are webhooks, by name.
	Programs = ""

	// maxSize limits the files, in bytes. See maxImages and maxText.
	maxSize = 4 << 20
)

// deliveredFile returns the file in the state directory with the last announcement delivered to a consumer. It survives
// a reboot, so that changes at boot are reported.
func deliveredFile(consumer string) string {
	if consumer == Programs {
		return "hook.json"
	}
	return "hook." + consumer + ".json"
}

// Outbox stores the daemon's announcements for hooks. Safe for concurrent use.
type Outbox struct {
	stateDir, runtimeDir string
	consumers            []string // see Change

	mu        sync.Mutex
	last      *Announcement // nil if not read yet
	forgotten bool          // see forget
}

// New returns the outbox in these directories, which are created by the first write, for the consumers of changes.
func New(stateDir, runtimeDir string, consumers ...string) *Outbox {
	return &Outbox{stateDir: stateDir, runtimeDir: runtimeDir, consumers: consumers}
}

// Announce writes the announcement of a status, and requests a run of the hook. If nothing has changed, it does
// neither, unless a retry is due.
func (d *Outbox) Announce(ctx context.Context, s status.Status) error {
	return errors.Join(d.write(ctx, s, d.due), d.again(time.Now()), d.forget())
}

// Note writes the announcement without requesting a run: for a node without hooks, which may be configured later.
func (d *Outbox) Note(ctx context.Context, s status.Status) error {
	return errors.Join(d.write(ctx, s, func() error { return nil }), d.forget())
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
			kept = Announcement{} // an unreadable file is written again
		}
		last = &kept
	}
	now := announce(s, *last)
	if now.same(*last) && (d.last != nil || !d.isPending(now)) {
		d.last = last
		return nil
	}
	if err := writeJSON(d.runtimeDir, announcementFile, now, 0o644); err != nil {
		return err
	}
	if err := request(); err != nil {
		return err
	}
	d.last = &now
	return nil
}

// isPending reports whether a consumer has not received it yet: an earlier daemon may have been killed before it
// requested a run.
func (d *Outbox) isPending(now Announcement) bool {
	return slices.ContainsFunc(d.consumers, func(consumer string) bool {
		before, _ := read(d.stateDir, deliveredFile(consumer)) // as in Change
		return !now.after(before).since(before).Empty()
	})
}

// Due requests a run of the hook for a change of the grains.
func (d *Outbox) Due(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return d.due()
}

func (d *Outbox) due() error { return write(d.runtimeDir, DueFile, nil, 0o644) }

// Take removes the due file, and reports whether there was one: the daemon requested the run. A later change requests
// another run.
func (d *Outbox) Take() (requested bool, err error) { return remove(d.runtimeDir, DueFile) }

// remove reports whether the file was there.
func remove(dir, name string) (was bool, err error) {
	err = os.Remove(filepath.Join(dir, name))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("hook: %w", err)
	}
	return err == nil, nil
}

// Change returns the difference between the last announcement delivered to a consumer and the current one. delivered
// records the current one as delivered.
func (d *Outbox) Change(consumer string) (c Change, delivered func() error, err error) {
	now, err := read(d.runtimeDir, announcementFile)
	if err != nil {
		return Change{}, nil, fmt.Errorf("hook: %w", err)
	}
	// If the file is unreadable, perhaps of another version, everything is new.
	before, _ := read(d.stateDir, deliveredFile(consumer))
	if now.SchemaVersion == 0 { // the daemon has not observed the node since the boot
		now = before
	}
	now = now.after(before) // the daemon's knowledge does not survive a boot
	return now.since(before), func() error {
		return writeJSON(d.stateDir, deliveredFile(consumer), now.withLastRunning(before), 0o600)
	}, nil
}

// read returns the zero announcement if there is no file.
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

func writeJSON(dir, name string, value any, mode fs.FileMode) error {
	data, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return fmt.Errorf("hook: %w", err)
	}
	return write(dir, name, append(data, '\n'), mode)
}

// write writes a file of a directory, which it creates.
func write(dir, name string, data []byte, mode fs.FileMode) error {
	err := os.MkdirAll(dir, 0o755)
	if err != nil {
		return fmt.Errorf("hook: %w", err)
	}
	d, err := nodefile.OpenDir(dir)
	if err != nil {
		return fmt.Errorf("hook: %w", err)
	}
	defer func() { _ = d.Close() }()
	if _, err := d.Write(name, data, nodefile.Options{Mode: mode}); err != nil {
		return fmt.Errorf("hook: %w", err)
	}
	return nil
}

// Recorder is a record.Recorder that also announces each published status. A failed announcement does not fail the
// daemon.
type Recorder struct {
	record.Recorder

	Announce func(context.Context, status.Status) error
	Log      *slog.Logger
}

// Publish publishes a status and announces it.
func (r Recorder) Publish(ctx context.Context, s status.Status) error {
	err := r.Recorder.Publish(ctx, s)
	if failed := r.Announce(ctx, s); failed != nil {
		r.Log.WarnContext(ctx, "change not announced to hooks", "err", failed)
	}
	return err
}

// forget removes the data of consumers that are no longer configured: if one is configured again, it is new. Without
// consumers, no retry is pending either. It runs once.
func (d *Outbox) forget() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.forgotten {
		return nil
	}
	entries, err := os.ReadDir(d.stateDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("hook: %w", err)
	}
	for _, entry := range entries {
		if name := entry.Name(); d.isForgotten(name) {
			if _, err := remove(d.stateDir, name); err != nil {
				return err
			}
		}
	}
	d.forgotten = true
	return nil
}

func (d *Outbox) isForgotten(file string) bool {
	if file == retryFile {
		return len(d.consumers) == 0
	}
	consumer := Programs
	if file != deliveredFile(Programs) {
		before, isJSON := strings.CutSuffix(file, ".json")
		name, isHook := strings.CutPrefix(before, "hook.")
		if consumer = name; !isJSON || !isHook || consumer == "" {
			return false
		}
	}
	return !slices.Contains(d.consumers, consumer)
}
