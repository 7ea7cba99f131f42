// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/kubic-project/image-update-agent/agent/fleet"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/api"
	"github.com/kubic-project/image-update-agent/internal/outside"
)

// checkLock looks at the lock of the fleet: this node's id, and whether the server gives the lock and takes it back.
func (n Node) checkLock(ctx context.Context, daemon *status.Status) []Finding {
	if n.Apply.Lock.URL == "" {
		return nil
	}
	return []Finding{n.checkLockID(), n.tryLock(ctx, daemon)}
}

// checkLockID looks at what the id is made of. Whether another machine has the same machine-id cannot be seen from
// here.
func (n Node) checkLockID() Finding {
	const check = "lock id"
	if problem := n.machineIDProblem(); problem != "" {
		return warn(check,
			problem+": machines with one machine-id are one holder for the lock server, and restart their pods at the same time",
			"give each machine its own: empty /etc/machine-id, systemd-machine-id-setup, and reboot; empty it in the image, too")
	}
	return ok(check, n.LockID+" (a machine with the same machine-id has it, too: compare `lock show` of the nodes)")
}

// isMachineID reports whether a text has the form of machine-id(5).
func isMachineID(id string) bool { return len(id) == 32 && strings.Trim(id, "0123456789abcdef") == "" }

// machineIDProblem is what is wrong with the machine-id; empty: nothing that can be seen.
func (n Node) machineIDProblem() string {
	own, err := os.ReadFile(n.at("etc/machine-id"))
	id := strings.TrimSpace(string(own))
	switch {
	case err != nil:
		return "the machine-id cannot be read (" + err.Error() + ")"
	case id == "":
		return "/etc/machine-id is empty"
	case !isMachineID(id):
		return fmt.Sprintf("/etc/machine-id is %q, which is no machine-id", outside.Line(id, maxShownID))
	case strings.Trim(id, id[:1]) == "":
		return "/etc/machine-id is " + id
	}
	for _, of := range []string{"usr/etc/machine-id", "usr/share/factory/etc/machine-id"} {
		if image, err := os.ReadFile(n.at(of)); err == nil && strings.TrimSpace(string(image)) == id {
			return "/etc/machine-id is that of the system's image (/" + of + ")"
		}
	}
	return ""
}

const maxShownID = 40 // bytes

// tryLock has the daemon try the lock: it alone knows that nothing needs it meanwhile, and its record gives it back
// after a crash.
func (n Node) tryLock(ctx context.Context, daemon *status.Status) Finding {
	const check, start = "lock", "systemctl start image-update-agent, then doctor again"
	if daemon == nil {
		return warn(check, "not tried: the daemon, which knows whether this node has the lock, does not answer", start)
	}
	l := daemon.Lock
	switch set := n.Apply.Lock; {
	case l == nil || l.Server != set.URL || l.Group != set.Group || l.ID != n.LockID:
		return warn(check, "not tried: the daemon has another configuration of the lock",
			"systemctl reload image-update-agent, then doctor again")
	case l.IsStuck():
		return fail(check, errors.New("the server does not take it back: "+l.Error), stuck)
	case l.State != fleet.LockFree:
		return advise(check, fmt.Sprintf("not tried: this node's lock is %s since %s", l.State, l.Since.Format(time.RFC3339)),
			"doctor again when `image-update-agent lock show` says that it is not wanted")
	case !l.WorkedAt.IsZero():
		return worked(l)
	}
	s, err := api.NewClient(filepath.Join(n.RuntimeDir, "agent.sock")).TryLock(ctx, nil)
	if s != nil && s.Lock != nil {
		l = s.Lock
	}
	switch {
	case err == nil && !l.WorkedAt.IsZero():
		return worked(l)
	case err == nil:
		return warn(check, "not tried: the daemon does not say whether it worked", "systemctl restart image-update-agent")
	case errors.Is(err, os.ErrPermission):
		return warn(check, "not tried: "+err.Error(), "run doctor as root")
	case l.State == fleet.LockReleasing:
		return fail(check, err, stuck)
	case errors.Is(err, release.ErrHeld):
		return advise(check, "the server answers, and whether it takes the lock back was not tried: "+err.Error(),
			"doctor again when no other node has the lock")
	default:
		return fail(check, err, "correct apply.lock.url, group, ca, cert or key, or the lock server, as the message says; "+
			"if the id has the lock already and no machine has the same machine-id, image-update-agent lock release")
	}
}

const stuck = "see the lock server's log; if it looks nodes up by Zincati's id (poseidon's fleetlock), " +
	"apply.lock.id: zincati; then image-update-agent lock release, or free the lock at the server"

func worked(l *fleet.LockStatus) Finding {
	return ok("lock", fmt.Sprintf("%s gave it and took it back at %s", l.Server, l.WorkedAt.Format(time.RFC3339)))
}
