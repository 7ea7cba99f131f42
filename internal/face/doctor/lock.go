// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/kubic-project/image-update-agent/agent/fleet"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/base/nodefile"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
	"github.com/kubic-project/image-update-agent/internal/face/api"
)

// checkLock looks at the fleet lock: this node's id, and whether the server gives the lock and takes it back.
func (n Node) checkLock(ctx context.Context, daemon *status.Status) []Finding {
	switch lock := n.Apply.Lock; {
	case lock.Lease != "":
		holder := n.checkHolder(ctx, daemon)
		if holder.Verdict == Fail {
			return []Finding{holder}
		}
		return []Finding{holder, n.tryLock(ctx, daemon)}
	case lock.URL != "":
		return []Finding{n.checkLockID(), n.tryLock(ctx, daemon)}
	}
	return nil
}

// checkHolder compares the holder of a lock in the cluster with what the daemon knows. People and other programs can
// change it.
func (n Node) checkHolder(ctx context.Context, daemon *status.Status) Finding {
	const check = "lock holder"
	h, err := n.LockHolder(ctx)
	var known fleet.LockStatus
	if daemon != nil && daemon.Lock != nil {
		known = *daemon.Lock
	}
	name := n.Apply.Lock.Lease
	free := n.Apply.Lock.Target().FreeCommand()
	switch {
	case err != nil:
		return fail(check, err, n.lockRemedy(err))
	case known.State == fleet.LockHeld && (h == nil || h.ID != n.LockID):
		return warn(check, "the daemon has the lock, but "+name+" has "+holderOf(h)+": somebody changed it",
			"when the pods of this node are healthy, run image-update-agent lock release")
	case h == nil:
		return ok(check, name+" is free; the name of this node is "+n.LockID)
	case h.ID == n.LockID && known.State != "" && known.State.IsIdle():
		return warn(check, name+" has this node as "+holderOf(h)+", but the daemon does not need the lock",
			"if no other machine has the name "+n.LockID+", run "+free)
	case h.Gone:
		return warn(check, name+" has "+holderOf(h)+", which is no node of the cluster: all other nodes wait",
			"run "+free)
	}
	return ok(check, name+" has "+holderOf(h))
}

func holderOf(h *fleet.LockHolder) string {
	switch {
	case h == nil:
		return "no holder"
	case h.Since.IsZero():
		return "holder " + h.ID
	}
	return "holder " + h.ID + " since " + h.Since.Format(time.RFC3339)
}

// lockRemedy is how to reach a lock in the cluster. The API server says itself which permission is missing.
func (n Node) lockRemedy(err error) string {
	if e, is := errors.AsType[*fleet.LockError](err); is && e.Status == http.StatusForbidden {
		namespace, _, _ := strings.Cut(n.Apply.Lock.Lease, "/")
		return "let the user of the kubeconfig get, create and update leases.coordination.k8s.io in namespace " +
			namespace + ": docs/fleets.md has a Role"
	}
	return "correct apply.lock.lease or apply.lock.kubeconfig, or restore the connection to the API server"
}

// checkLockID looks at what the id is made of. Whether another machine has the same machine-id cannot be seen from
// here.
func (n Node) checkLockID() Finding {
	const check = "lock id"
	if problem := n.machineIDProblem(); problem != "" {
		return warn(check,
			problem+": for the lock server, machines with the same machine-id are one node, and restart their pods at once",
			"give each machine its own: empty /etc/machine-id (also in the image), run systemd-machine-id-setup, and reboot")
	}
	return ok(check, n.LockID+" (unique unless machines share a machine-id: compare `lock show` of the nodes)")
}

// isMachineID reports whether a text has the form of machine-id(5).
func isMachineID(id string) bool { return len(id) == 32 && strings.Trim(id, "0123456789abcdef") == "" }

// machineIDProblem is what is wrong with the machine-id; empty: nothing that can be seen.
func (n Node) machineIDProblem() string {
	own, err := nodefile.Read(n.at("etc/machine-id"), maxMachineID)
	id := strings.TrimSpace(string(own))
	switch {
	case err != nil:
		return "cannot read the machine-id (" + err.Error() + ")"
	case id == "":
		return "/etc/machine-id is empty"
	case !isMachineID(id):
		return fmt.Sprintf("/etc/machine-id is %q, which is not a machine-id", outside.Line(id, maxShownID))
	case strings.Trim(id, id[:1]) == "":
		return "/etc/machine-id is " + id
	}
	for _, of := range []string{"usr/etc/machine-id", "usr/share/factory/etc/machine-id"} {
		if image, err := nodefile.Read(n.at(of), maxMachineID); err == nil && strings.TrimSpace(string(image)) == id {
			return "/etc/machine-id is the one of the system image (/" + of + ")"
		}
	}
	return ""
}

const (
	maxShownID   = 40      // bytes
	maxMachineID = 4 << 10 // bytes of a file
)

// tryLock makes the daemon try the lock: only the daemon knows that nothing needs it meanwhile, and releases it after a
// crash.
func (n Node) tryLock(ctx context.Context, daemon *status.Status) Finding {
	const check, start = "lock", "run systemctl start image-update-agent, then doctor again"
	if daemon == nil {
		return warn(check, "not tried: the daemon does not answer, and only it knows whether this node has the lock", start)
	}
	l := daemon.Lock
	switch {
	case l == nil || l.Target() != n.Apply.Lock.Target() || l.ID != n.LockID:
		return warn(check, "not tried: the daemon uses other settings for the lock",
			"run systemctl reload image-update-agent, then doctor again")
	case l.IsStuck():
		return fail(check, errors.New("the lock cannot be released: "+l.Error), n.stuck(nil))
	case !l.State.IsIdle():
		return advise(check, fmt.Sprintf("not tried: the lock of this node is %s since %s", l.State,
			l.Since.Format(time.RFC3339)),
			"run doctor again when image-update-agent lock show reports that the lock is not needed")
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
		return warn(check, "not tried: the daemon does not report whether it worked",
			"run systemctl restart image-update-agent")
	case errors.Is(err, os.ErrPermission):
		return warn(check, "not tried: "+err.Error(), asRoot)
	case l.State == fleet.LockReleasing:
		return fail(check, err, n.stuck(err))
	case errors.Is(err, release.ErrHeld):
		return advise(check, "the lock answers, but its release was not tried: "+err.Error(),
			"run doctor again when no other node has the lock")
	case n.Apply.Lock.URL == "":
		return fail(check, err, n.lockRemedy(err))
	default:
		return fail(check, err, "correct apply.lock.url, group, ca, cert or key, or repair the lock server; "+
			"if this id already has the lock and no machine has the same machine-id, run image-update-agent lock release")
	}
}

const stuck = "see the log of the lock server; if it identifies nodes by Zincati's id (poseidon's fleetlock), set " +
	"apply.lock.id: zincati, then run image-update-agent lock release; otherwise release the lock on the server"

// stuck is how to release a lock that the server does not take back.
func (n Node) stuck(err error) string {
	if n.Apply.Lock.URL == "" {
		return n.lockRemedy(err)
	}
	return stuck
}

func worked(l *fleet.LockStatus) Finding {
	return ok("lock", fmt.Sprintf("%s granted and released the lock at %s",
		l.Target().Place(), l.WorkedAt.Format(time.RFC3339)))
}
