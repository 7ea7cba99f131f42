// SPDX-License-Identifier: Apache-2.0

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
	"path/filepath"
	"syscall"

	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
	"github.com/kubic-project/image-update-agent/internal/face/bus"
)

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
	const service = "org.opensuse.RebootMgr"
	var state uint32
	ok, err := n.ask(ctx, patience,
		bus.Question{Service: service, Path: "/org/opensuse/RebootMgr", Method: service + ".Status"}, &state)
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

// window returns the maintenance window of rebootmgr 2.x for people.
func (n Node) window(ctx context.Context) string {
	const service = "org.opensuse.RebootMgr"
	const some = "its maintenance window"
	var start, length string
	_, err := n.ask(ctx, patience,
		bus.Question{Service: service, Path: "/org/opensuse/RebootMgr", Method: service + ".GetMaintenanceWindow"},
		&start, &length)
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
