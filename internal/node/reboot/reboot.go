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
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
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

// rebootmgrSocket is the socket of rebootmgr 3.x, RM_VARLINK_SOCKET in its rebootmgr.h.
const rebootmgrSocket = "/run/rebootmgr/rebootmgrd.socket"

// rebootStatus is the answer of org.openSUSE.rebootmgr.Status. RebootStatus is 0 if no reboot is requested, 1 if one
// is, 2 if it waits for its time (RM_RebootStatus in rebootmgr.h).
type rebootStatus struct {
	RebootStatus    *int
	RequestedMethod int    // 1 reboot, 2 soft-reboot
	RebootTime      string // for people, in the node's time zone
	RebootDisabled  bool   // rebootmgr does not act when the time comes
}

// rebootmgr3 asks rebootmgr 3.x. A soft reboot is a hold as well: it ends all containers.
func (n Node) rebootmgr3(ctx context.Context) []status.Hold {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var s rebootStatus
	err := varlink(ctx, filepath.Join("/", n.Root, rebootmgrSocket), "org.openSUSE.rebootmgr.Status", &s)
	switch {
	case errors.Is(err, errNobody):
		return nil
	case err == nil && s.RebootStatus == nil:
		err = errors.New("the answer has no RebootStatus")
	}
	if err != nil {
		return hold(status.HoldReboot, fmt.Sprintf("rebootmgr: %v", err))
	}
	if *s.RebootStatus == 0 || s.RebootDisabled {
		return nil
	}
	what, when := "a reboot", "as soon as rebootmgr allows it"
	if s.RequestedMethod == 2 {
		what = "a soft reboot"
	}
	if s.RebootTime != "" {
		when = "at " + outside.Text(s.RebootTime)
	}
	return hold(status.HoldReboot, fmt.Sprintf("rebootmgr: %s was requested and comes %s", what, when))
}

// rebootmgr2 asks rebootmgr 2.x: 0 none, 1 requested, 2 waiting for the window, in old versions 3 waiting for its lock
// in etcd. The call does not start it: while it is not running it reboots nothing.
func (n Node) rebootmgr2(ctx context.Context) []status.Hold {
	var state uint32
	ok, err := n.ask(ctx, patience, ofRebootMgr("Status"), &state)
	switch {
	case err != nil:
		return hold(status.HoldReboot, err.Error())
	case !ok || state == 0:
		return nil
	case state == 2:
		return hold(status.HoldReboot, "rebootmgr: a reboot was requested and waits for "+n.window(ctx))
	default:
		return hold(status.HoldReboot, "rebootmgr: a reboot was requested")
	}
}

func ofRebootMgr(method string) bus.Question {
	const service = "org.opensuse.RebootMgr"
	return bus.Question{Service: service, Path: "/org/opensuse/RebootMgr", Method: service + "." + method}
}

// window returns the maintenance window of rebootmgr 2.x for people.
func (n Node) window(ctx context.Context) string {
	const some = "its maintenance window"
	var start, length string
	_, err := n.ask(ctx, patience, ofRebootMgr("GetMaintenanceWindow"), &start, &length)
	if err != nil || start == "" {
		return some // the reboot is known to wait, which is enough
	}
	return fmt.Sprintf("%s (%s, %s long)", some, outside.Text(start), outside.Text(length))
}

// maxMessage limits a varlink message, in bytes; rebootmgr's has 200.
const maxMessage = 64 << 10

// errNobody: there is no socket, or no listener.
var errNobody = errors.New("not there")

// varlink calls a method without parameters and decodes the answer: one JSON message in each direction, terminated by
// NUL (https://varlink.org/Interface-Definition, Protocol).
func varlink(ctx context.Context, socket, method string, into any) error {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", socket)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.ECONNREFUSED):
		return errNobody
	case err != nil:
		return err
	}
	hangUp := func() { _ = conn.Close() } // no data is in transit
	defer hangUp()
	defer context.AfterFunc(ctx, hangUp)() // unblocks pending I/O
	message, err := exchange(conn, method)
	if err != nil {
		if errors.Is(ctx.Err(), context.DeadlineExceeded) { // the deadline closed the connection
			return bus.ErrSilent
		}
		return err
	}
	return decode(message, into)
}

// decode reads an answer.
func decode(message []byte, into any) error {
	var answer struct {
		Error      string
		Parameters json.RawMessage
	}
	if err := json.Unmarshal(message, &answer); err != nil {
		return outside.Error(fmt.Errorf("varlink: %w", err))
	}
	if answer.Error != "" {
		return fmt.Errorf("varlink: %s", outside.Text(answer.Error))
	}
	if len(answer.Parameters) == 0 {
		return errors.New("varlink: an answer without parameters")
	}
	if err := json.Unmarshal(answer.Parameters, into); err != nil {
		return outside.Error(fmt.Errorf("varlink: %w", err))
	}
	return nil
}

// exchange sends the call and reads one message, without its NUL.
func exchange(conn net.Conn, method string) ([]byte, error) {
	call, err := json.Marshal(map[string]any{"method": method, "parameters": struct{}{}})
	if err != nil {
		return nil, err
	}
	if _, err := conn.Write(append(call, 0)); err != nil {
		return nil, err
	}
	message, err := bufio.NewReader(io.LimitReader(conn, maxMessage)).ReadBytes(0)
	switch {
	case errors.Is(err, io.EOF) && len(message) == maxMessage:
		return nil, fmt.Errorf("varlink: answer larger than %d KiB", maxMessage>>10)
	case errors.Is(err, io.EOF):
		return nil, errors.New("varlink: connection closed before the end of the answer")
	case err != nil:
		return nil, err
	}
	return bytes.TrimSuffix(message, []byte{0}), nil
}

// snapshot asks tukit whether the next boot uses the running snapshot. Later writes to /etc are copied file by file,
// and lost if the new snapshot has its own version.
func (n Node) snapshot(ctx context.Context) []status.Hold {
	const service = "org.opensuse.tukit"
	var list []map[string]string
	ok, err := n.ask(ctx, slowPatience, bus.Question{
		Service: service, Path: "/org/opensuse/tukit/Snapshot", Method: service + ".Snapshot.List",
		Args: []any{"number,default,active"}, Start: true,
	}, &list)
	switch {
	case err != nil:
		return hold(status.HoldSnapshot, err.Error())
	case !ok || len(list) == 0:
		return nil
	}
	next, running := marked(list, "default"), marked(list, "active")
	switch {
	case next == "" || running == "":
		return hold(status.HoldSnapshot, service+": names no default or no active snapshot")
	case next == running:
		return nil
	}
	return hold(status.HoldSnapshot,
		fmt.Sprintf("snapshot %s waits for a reboot, %s is running", outside.Text(next), outside.Text(running)))
}

// marked returns the number of the snapshot that has a mark.
func marked(list []map[string]string, mark string) string {
	for _, s := range list {
		if s[mark] == "yes" {
			return s["number"]
		}
	}
	return ""
}
