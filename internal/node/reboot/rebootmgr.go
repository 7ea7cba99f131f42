// SPDX-License-Identifier: Apache-2.0

package reboot

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

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
