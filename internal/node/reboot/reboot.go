// SPDX-License-Identifier: Apache-2.0

// Package reboot detects whether the node is about to reboot, or will boot another snapshot: then the agent applies
// nothing.
//
// It only reads: rebootmgr (3.x over varlink, 2.x over D-Bus), systemd's scheduled shutdown, the files that request a
// reboot (kured's sentinel and SUSE's), and tukit, whose snapshot waits for a reboot. A source that the node does not
// have is no hold; a source that cannot be read is a hold with its error.
//
// rebootmgr is asked with NO_AUTO_START; tukitd is started, as nothing else knows about snapshots. No method that sets
// anything is called.
package reboot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/base/nodefile"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
	"github.com/kubic-project/image-update-agent/internal/face/bus"
)

const (
	// patience limits the answer of a daemon that answers from memory.
	patience = 2 * time.Second
	// slowPatience limits tukitd's answer: the bus starts it for the call, and it starts snapper.
	slowPatience = 5 * time.Second
)

// Node is the node to observe. The zero value is the local one, without a bus.
type Node struct {
	Root string // prefix of /run; may be empty
	Bus  string // D-Bus address of the system bus; empty if there is none
}

// Holds returns the holds for imminent reboots. It reads all sources concurrently.
func (n Node) Holds(ctx context.Context) []status.Hold {
	sources := []func(context.Context) []status.Hold{
		n.scheduled, n.sentinel, n.rebootmgr3, n.rebootmgr2, n.snapshot,
	}
	found := make([][]status.Hold, len(sources))
	var all sync.WaitGroup
	for i, source := range sources {
		all.Go(func() { found[i] = source(ctx) })
	}
	all.Wait()
	return slices.Concat(found...)
}

// ask calls a service on the bus. It returns false if there is no such service.
func (n Node) ask(ctx context.Context, wait time.Duration, q bus.Question, into ...any) (bool, error) {
	if n.Bus == "" {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	conn, err := bus.Open(ctx, n.Bus)
	if err == nil {
		defer conn.Close()
		err = conn.Ask(ctx, q, into...)
	}
	if errors.Is(err, bus.ErrNone) || errors.Is(err, bus.ErrAbsent) {
		return false, nil
	}
	return err == nil, err
}

func hold(name, reason string) []status.Hold { return []status.Hold{{Name: name, Reason: reason}} }

const (
	// scheduledFile is written by systemd-logind while a shutdown is scheduled
	// (shutdown(8)), and removed when it is cancelled.
	scheduledFile = "/run/systemd/shutdown/scheduled"
	// maxScheduled limits it, in bytes; it has three lines and a message.
	maxScheduled = 4 << 10
)

// sentinels are the files that request a reboot: Debian's, which is kured's default, and SUSE's, written by zypper and
// transactional-update. /var/run is /run, but below another root its link may point elsewhere.
var sentinels = []string{
	"/run/reboot-required", "/var/run/reboot-required", "/run/reboot-needed", "/var/run/reboot-needed",
}

// scheduled checks for systemd's scheduled shutdown of any kind.
func (n Node) scheduled(context.Context) []status.Hold {
	path := filepath.Join("/", n.Root, scheduledFile)
	info, err := os.Stat(path)
	if isAbsent(err) {
		return nil
	}
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s: not a regular file", path)
	}
	var text string
	if err == nil {
		text, err = head(path)
	}
	if isAbsent(err) {
		return nil // cancelled just now
	}
	if err != nil {
		return hold(status.HoldReboot, fmt.Sprintf("scheduled shutdown: %v", err))
	}
	reason, at := describe(text)
	return []status.Hold{{Name: status.HoldReboot, Reason: reason, Until: at}}
}

// describe parses the file of a scheduled shutdown; the time is zero if it has none.
func describe(text string) (reason string, at time.Time) {
	mode, when := "shutdown", "at an unknown time"
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		switch key {
		case "MODE":
			mode = outside.Text(value)
		case "USEC":
			if usec, err := strconv.ParseInt(value, 10, 64); err == nil {
				at = outside.Time(time.UnixMicro(usec).UTC())
				when = "at " + at.Format(time.RFC3339)
			}
		}
	}
	return fmt.Sprintf("%s is scheduled %s", mode, when), at
}

// head reads the beginning of a regular file.
func head(path string) (string, error) {
	file, err := nodefile.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxScheduled))
	return string(text), err
}

// sentinel checks for a file that requests a reboot by kured or a person.
func (n Node) sentinel(context.Context) []status.Hold {
	for _, name := range sentinels {
		_, err := os.Stat(filepath.Join("/", n.Root, name))
		switch {
		case err == nil:
			return hold(status.HoldReboot, name+" requests a reboot")
		case !isAbsent(err):
			return hold(status.HoldReboot, err.Error())
		}
	}
	return nil
}

func isAbsent(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}
