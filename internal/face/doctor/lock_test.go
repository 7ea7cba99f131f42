// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/fleet"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/face/api"
	"github.com/kubic-project/image-update-agent/internal/node/config"
)

func TestCheckLockID(t *testing.T) {
	t.Parallel()
	const own = "3d1219c7c4c5404aaa1f6d2a48adfda4"
	for title, c := range map[string]struct{ id, image, want string }{
		"its own":               {own, "", ""},
		"the image has none":    {own, "uninitialized\n", ""},
		"the image has another": {own, "4d1219c7c4c5404aaa1f6d2a48adfda4", ""},
		"that of the image":     {own + "\n", own + "\n", "the one of the system image (/usr/etc/machine-id)"},
		"empty":                 {"", "", "is empty"},
		"a line":                {"\n", "", "is empty"},
		"never booted":          {"uninitialized\n", "", `"uninitialized", which is not a machine-id`},
		"zeros":                 {"00000000000000000000000000000000", "", "is 0000"},
		"of a host's name":      {"node1.example.com", "", "not a machine-id"},
	} {
		t.Run(title, func(t *testing.T) {
			n := newNode(t)
			n.LockID = "the id"
			n.put(t, "etc/machine-id", c.id)
			n.put(t, "usr/etc/machine-id", c.image)
			verdict, want := Warn, c.want
			if want == "" {
				verdict, want = OK, "the id"
			}
			found(t, n.checkLockID(), verdict, want)
		})
	}
	assert.Equal(t, Warn, newNode(t).checkLockID().Verdict, "there is none")
	assert.Empty(t, newNode(t).checkLock(t.Context(), nil), "no lock is configured")
}

// locking is a daemon that tries the lock.
type locking struct {
	api.Daemon
	tried  int
	after  fleet.LockStatus
	failed error
}

func (*locking) Status() status.Status { return status.Status{SchemaVersion: 1} }

func (l *locking) TryLock(context.Context, func(status.Progress)) (status.Status, error) {
	l.tried++
	return status.Status{SchemaVersion: 1, Lock: &l.after}, l.failed
}

// The holder of a Lease in the cluster, beside what the daemon knows.
func TestCheckLease(t *testing.T) {
	t.Parallel()
	const name = "kube-system/updates"
	at := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	daemon := func(state fleet.LockState) *status.Status {
		return &status.Status{Lock: &fleet.LockStatus{Lease: name, ID: "node-1", State: state}}
	}
	refused := &fleet.LockError{Server: "api:6443", Status: 403, Value: `User "x" cannot update resource "leases"`}
	for title, c := range map[string]struct {
		holder  *fleet.LockHolder
		err     error
		daemon  *status.Status
		verdict string
		detail  string
		remedy  string
	}{
		"free":                 {nil, nil, daemon(fleet.LockFree), OK, "is free; the name of this node is node-1", ""},
		"free, no daemon":      {nil, nil, nil, OK, "is free", ""},
		"another node":         {&fleet.LockHolder{ID: "node-2", Since: at}, nil, daemon(fleet.LockWaiting), OK, "has holder node-2 since 2026-05-01T12:00:00Z", ""},
		"this node":            {&fleet.LockHolder{ID: "node-1"}, nil, daemon(fleet.LockHeld), OK, "has holder node-1", ""},
		"a node that is gone":  {&fleet.LockHolder{ID: "node-9", Gone: true}, nil, daemon(fleet.LockFree), Warn, "holder node-9, which is no node of the cluster", "run kubectl -n kube-system patch lease updates"},
		"this node without it": {&fleet.LockHolder{ID: "node-1"}, nil, daemon(fleet.LockFree), Warn, "the daemon does not need", "patch lease updates --type merge"},
		"somebody freed it":    {nil, nil, daemon(fleet.LockHeld), Warn, "has no holder: somebody changed it", "image-update-agent lock release"},
		"somebody gave it":     {&fleet.LockHolder{ID: "node-2"}, nil, daemon(fleet.LockHeld), Warn, "has holder node-2: somebody changed it", "image-update-agent lock release"},
		"a permission":         {nil, refused, daemon(fleet.LockFree), Fail, `403: User "x" cannot update resource "leases"`, "get, create and update leases.coordination.k8s.io in namespace kube-system"},
		"no API server":        {nil, &fleet.LockError{Server: "api:6443", Err: errors.New("refused")}, nil, Fail, "refused", "restore the connection to the API server"},
	} {
		t.Run(title, func(t *testing.T) {
			n := newNode(t)
			n.Apply.Lock, n.LockID = config.Lock{Lease: name}, "node-1"
			n.LockHolder = func(context.Context) (*fleet.LockHolder, error) { return c.holder, c.err }
			all := n.checkLock(t.Context(), c.daemon)
			require.NotEmpty(t, all)
			found(t, all[0], c.verdict)
			assert.Contains(t, all[0].Detail, c.detail)
			assert.Contains(t, all[0].Remedy, c.remedy)
			assert.Equal(t, c.verdict == Fail, len(all) == 1, "a lock that fails is not tried")
		})
	}
	n := newNode(t)
	n.Apply.Lock, n.LockID = config.Lock{Lease: name}, "node-1"
	worked := daemon(fleet.LockFree)
	worked.Lock.WorkedAt = at
	assert.Equal(t, "the Lease "+name+" granted and released the lock at 2026-05-01T12:00:00Z", n.tryLock(t.Context(), worked).Detail)
	assert.Contains(t, n.tryLock(t.Context(), &status.Status{Lock: &fleet.LockStatus{Server: "https://lock", ID: "node-1"}}).Detail, "other settings")
	worked.Lock.State, worked.Lock.Error = fleet.LockReleasing, "403: no"
	assert.Contains(t, n.tryLock(t.Context(), worked).Remedy, "apply.lock.kubeconfig")
}

func TestTryLock(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	lock := func(edit func(*fleet.LockStatus)) *fleet.LockStatus {
		l := &fleet.LockStatus{Server: "https://lock", Group: "g", ID: "me", State: fleet.LockFree}
		edit(l)
		return l
	}
	free := lock(func(*fleet.LockStatus) {})
	hasWorked := lock(func(l *fleet.LockStatus) { l.WorkedAt = at })
	isStuck := lock(func(l *fleet.LockStatus) { l.State, l.Error = fleet.LockReleasing, "500: no node" })
	held := lock(func(l *fleet.LockStatus) { l.State, l.Since = fleet.LockHeld, at })
	for title, c := range map[string]struct {
		before, after *fleet.LockStatus
		err           error
		verdict, want string
		tries         int
	}{
		"it works":            {free, hasWorked, nil, OK, "granted and released the lock at 2026-05-01T12:00:00Z", 1},
		"it worked before":    {hasWorked, nil, nil, OK, "granted and released the lock", 0},
		"it is held":          {held, nil, nil, Advice, "not tried: the lock of this node is held", 0},
		"it is stuck already": {isStuck, nil, nil, Fail, "the lock cannot be released: 500: no node", 0},
		"it becomes stuck":    {free, isStuck, errors.New("500: no node"), Fail, "500: no node", 1},
		"another node has it": {free, free, release.ErrHeld, Advice, "was not tried", 1},
		"the server is away":  {free, free, errors.New("connection refused"), Fail, "connection refused", 1},
		"nothing is said":     {free, free, nil, Warn, "does not report", 1},
		"another group":       {lock(func(l *fleet.LockStatus) { l.Group = "h" }), nil, nil, Warn, "other settings", 0},
		"another id":          {lock(func(l *fleet.LockStatus) { l.ID = "h" }), nil, nil, Warn, "other settings", 0},
		"the daemon has none": {nil, nil, nil, Warn, "other settings", 0},
	} {
		t.Run(title, func(t *testing.T) {
			n := newNode(t)
			n.Apply.Lock, n.LockID = config.Lock{URL: "https://lock", Group: "g"}, "me"
			d := &locking{failed: c.err}
			if c.after != nil {
				d.after = *c.after
			}
			log := slog.New(slog.DiscardHandler)
			s, err := api.Listen(t.Context(), filepath.Join(n.RuntimeDir, "agent.sock"), false, d, log)
			require.NoError(t, err)
			go func() { _ = s.Serve() }()
			found(t, n.tryLock(t.Context(), &status.Status{Lock: c.before}), c.verdict, c.want)
			assert.Equal(t, c.tries, d.tried)
			require.NoError(t, s.Close())
		})
	}
	n := newNode(t)
	n.Apply.Lock = config.Lock{URL: "https://lock"}
	assert.Contains(t, n.tryLock(t.Context(), nil).Detail, "not tried")
}
