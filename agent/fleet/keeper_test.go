// SPDX-License-Identifier: Apache-2.0

package fleet_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/fleet"
	"github.com/kubic-project/image-update-agent/agent/release"
)

var (
	lock    = fleet.Lock{Pods: fleet.LockAll, Target: fleet.Target{Server: "https://lock", Group: "g"}, ID: "me"}
	taken   = &fleet.LockError{Server: "lock", Status: 409, Value: "all slots are taken"}
	lost    = &fleet.LockError{Server: "lock", Err: errors.New("the answer was lost")}
	errFull = errors.New("no space left on device")
)

// node is a node's Keeper with its lock server and the record's disk.
type node struct {
	*fleet.Keeper
	answer      fleet.LockAnswer
	err, unlock error
	full        error    // error of the disk
	did         []string // requests and saved states
}

func newNode() *node {
	n := &node{}
	n.Keeper = &fleet.Keeper{
		Server: asker{n}, Lock: lock, Hold: "lock", Record: &fleet.LockRecord{}, Worked: &fleet.LockWorked{}, Records: n,
		Heartbeat: func() func() { return func() {} }, Log: slog.New(slog.DiscardHandler), Now: func() time.Time { return now },
		Jitter: func() float64 { return 0.5 },
	}
	return n
}

func (n *node) Save(context.Context) error {
	n.did = append(n.did, "save "+string(n.Record.State))
	return n.full
}

func (n *node) TrySave(ctx context.Context, _ string) { _ = n.Save(ctx) }

// asker is the lock server as the node sees it.
type asker struct{ *node }

func (a asker) Lock(context.Context) (fleet.LockAnswer, error) {
	a.did = append(a.did, "lock")
	return a.answer, a.err
}

func (a asker) Unlock(context.Context) error {
	a.did = append(a.did, "unlock")
	return a.unlock
}

// Doctor's trial takes the lock and releases it, once per configuration. The record says before the request that the
// lock must be released, and keeps a lock that may not have been released.
func TestTryLock(t *testing.T) {
	t.Parallel()
	works := []string{"save releasing", "lock", "save releasing", "unlock"}
	for title, c := range map[string]struct {
		set   func(*node)
		err   string
		is    error
		did   []string
		state fleet.LockState
	}{
		"it works":              {func(*node) {}, "", nil, works, ""},
		"it was refused before": {func(n *node) { n.Record.Refuse(fleet.LockRecord{Pods: []string{"a.yaml"}}, now) }, "", nil, works, ""},
		"it has worked": {func(n *node) {
			*n.Worked = fleet.LockWorked{At: now, Target: fleet.Target{Server: "https://lock", Group: "g"}, ID: "me"}
		}, "", nil, nil, ""},
		"another one has worked": {func(n *node) {
			*n.Worked = fleet.LockWorked{At: now, Target: fleet.Target{Server: "https://lock", Group: "h"}, ID: "me"}
		}, "", nil, works, ""},
		"another node has it":    {func(n *node) { n.err = taken }, "held: lock: lock server lock: 409: all slots are taken", release.ErrHeld, works[:2], ""},
		"the id has it already":  {func(n *node) { n.answer.Retained = true }, fleet.ErrRetained.Error(), fleet.ErrRetained, works[:2], ""},
		"there is no connection": {func(n *node) { n.err = &fleet.LockError{Server: "lock", Err: lost.Err, Unsent: true} }, "lock server lock: the answer was lost", nil, works[:2], ""},
		"the server refuses":     {func(n *node) { n.err = &fleet.LockError{Server: "lock", Status: 400, Kind: "bad"} }, "lock server lock: 400: bad", nil, works[:2], ""},
		"the answer is lost":     {func(n *node) { n.err = lost }, "lock server lock: the answer was lost", nil, works, ""},
		"it is not given back":   {func(n *node) { n.unlock = lost }, "lock server lock: the answer was lost", nil, works, fleet.LockReleasing},
		"neither is answered":    {func(n *node) { n.err, n.unlock = lost, lost }, "lock server lock: the answer was lost", nil, works, fleet.LockReleasing},
		"the disk is full":       {func(n *node) { n.full = errFull }, errFull.Error(), errFull, works[:1], ""},
		"the node waits for it":  {func(n *node) { n.Record.Ask("a.yaml", lock, now) }, "not tried: waiting since 2026-05-01T12:00:00Z", release.ErrHeld, nil, fleet.LockWaiting},
	} {
		n := newNode()
		c.set(n)
		err := n.Try(t.Context())
		assert.Equal(t, c.did, n.did, title)
		assert.Equal(t, c.state, n.Record.State, title)
		if c.err == "" {
			require.NoError(t, err, title)
			assert.Equal(t, now, n.Worked.Since(lock), title)
			continue
		}
		require.ErrorContains(t, err, c.err, title)
		if c.is != nil {
			require.ErrorIs(t, err, c.is, title)
			continue
		}
		trial := &fleet.TrialError{}
		require.ErrorAs(t, err, &trial, title)
	}
}

// The record has the request before it is sent, and the granted lock before anything is done under it.
func TestTakeAndUnlock(t *testing.T) {
	t.Parallel()
	for title, c := range map[string]struct {
		set   func(*node)
		err   string
		did   []string
		state fleet.LockState
	}{
		"it is given":         {func(*node) {}, "", []string{"save waiting", "show", "lock", "save held", "show"}, fleet.LockHeld},
		"another node has it": {func(n *node) { n.err = taken }, "lock: lock server lock: 409", []string{"save waiting", "show", "lock", "save waiting"}, fleet.LockWaiting},
		"the answer is lost":  {func(n *node) { n.err = lost }, "lock: lock server lock: the answer", []string{"save waiting", "show", "lock", "save waiting"}, fleet.LockWaiting},
		"the disk is full":    {func(n *node) { n.full = errFull }, "lock: no space left", []string{"save waiting"}, fleet.LockWaiting},
	} {
		n := newNode()
		c.set(n)
		err := n.Take(t.Context(), "a.yaml", func() { n.did = append(n.did, "show") })
		assert.Equal(t, c.did, n.did, title)
		assert.Equal(t, c.state, n.Record.State, title)
		assert.Equal(t, []string{"a.yaml"}, n.Record.Pods, title)
		if c.err == "" {
			require.NoError(t, err, title)
			continue
		}
		require.ErrorIs(t, err, release.ErrHeld, title)
		require.ErrorContains(t, err, c.err, title)
	}

	n := newNode()
	n.answer = fleet.LockAnswer{Holders: []fleet.LockHolder{{ID: "me"}, {ID: "other", Since: now}}, Slots: 1}
	require.NoError(t, n.Take(t.Context(), "a.yaml", func() {}))
	require.NoError(t, n.Take(t.Context(), "b.yaml", func() {}), "it is kept for another pod")
	assert.Equal(t, []string{"a.yaml", "b.yaml"}, n.Record.Pods)
	s := n.Record.LockStatus(lock, *n.Worked, []string{"a.yaml"})
	assert.Equal(t, &fleet.LockStatus{
		Server: "https://lock", Group: "g", ID: "me", Pods: "all", State: fleet.LockHeld, Since: now, Kept: true,
		PodManifests: []string{"a.yaml", "b.yaml"}, Holders: []fleet.LockHolder{},
		Warning: "another node has the lock, too (holder other since 2026-05-01T12:00:00Z)",
	}, s)
	assert.False(t, s.IsStuck())

	n.unlock = &fleet.LockError{Server: "lock", Status: 500, Value: "error uncordoning node"}
	require.ErrorIs(t, n.Unlock(t.Context()), release.ErrHeld)
	assert.True(t, n.Record.IsStuck())
	s = n.Record.LockStatus(lock, *n.Worked, nil)
	assert.True(t, s.IsStuck())
	assert.Equal(t, "lock server lock: 500: error uncordoning node", s.Error)
	assert.Equal(t, now.Add(time.Minute), s.RetryAt)
	n.full = errFull
	require.ErrorIs(t, n.Unlock(t.Context()), errFull)
	n.full, n.unlock = nil, nil
	require.NoError(t, n.Unlock(t.Context()))
	assert.Equal(t, fleet.LockRecord{}, *n.Record)
	assert.Equal(t, now, n.Worked.Since(lock))
	assert.Equal(t, fleet.LockFree, n.Record.LockStatus(lock, *n.Worked, nil).State)
	assert.Nil(t, n.Record.LockStatus(fleet.Lock{}, *n.Worked, nil), "none is configured")

	// Somebody else has changed the lock, or a repeated release finds it done.
	for state, worked := range map[fleet.LockState]time.Time{fleet.LockHeld: {}, fleet.LockReleasing: {}} {
		n := newNode()
		*n.Record, n.unlock = fleet.LockRecord{State: state, Given: true}, fleet.ErrLost
		require.NoError(t, n.Unlock(t.Context()))
		assert.Equal(t, fleet.LockRecord{}, *n.Record)
		assert.Equal(t, worked, n.Worked.Since(lock))
	}

	gone, leave := context.WithCancel(t.Context())
	leave()
	n.err = lost
	require.Error(t, n.Take(gone, "a.yaml", func() {}))
	assert.Zero(t, n.Record.Failures, "the request was ended")
}

// A request that cannot have reached the server took nothing: the node does not release it. In doubt it does.
func TestUnsentRequests(t *testing.T) {
	t.Parallel()
	unsent := &fleet.LockError{Server: "lock", Err: errors.New("connection refused"), Unsent: true}
	for title, c := range map[string]struct {
		set      func(*node)
		answers  []error
		released bool
		state    fleet.LockState
	}{
		"it was not sent":                 {func(*node) {}, []error{unsent}, false, fleet.LockRefused},
		"it was not sent twice":           {func(*node) {}, []error{unsent, unsent}, false, fleet.LockRefused},
		"the disk was full before":        {func(n *node) { n.full = errFull }, []error{nil}, false, ""},
		"after a refusal":                 {func(n *node) { n.Record.Refuse(fleet.LockRecord{Error: "full"}, now) }, []error{unsent}, false, fleet.LockRefused},
		"the first answer was lost":       {func(*node) {}, []error{lost, unsent}, true, fleet.LockRefused},
		"the second answer was lost":      {func(*node) {}, []error{unsent, lost}, true, fleet.LockRefused},
		"the server refused":              {func(*node) {}, []error{taken, unsent}, true, fleet.LockRefused},
		"it is held already":              {func(*node) {}, []error{nil, unsent}, true, ""},
		"its release is not confirmed":    {func(n *node) { n.Record.Try(lock, now) }, []error{unsent}, true, fleet.LockRefused},
		"a former version may have asked": {func(n *node) { n.Record.Ask("a.yaml", lock, now) }, []error{unsent}, true, fleet.LockRefused},
	} {
		n := newNode()
		c.set(n)
		for _, err := range c.answers {
			n.err = err
			_ = n.Take(t.Context(), "a.yaml", func() { assert.False(t, n.Record.Unsent, "%s: a crash leaves the doubt", title) })
		}
		n.full, n.did = nil, nil
		require.NoError(t, n.Finish(t.Context()), title)
		want := []string(nil)
		if c.released {
			want = []string{"save releasing", "unlock"}
		}
		assert.Equal(t, want, n.did, title)
		assert.Equal(t, c.state, n.Record.State, title)
		assert.Equal(t, c.state == fleet.LockRefused, n.Record.Error != "", title)
	}

	n := newNode()
	n.err = unsent
	require.ErrorIs(t, n.Take(t.Context(), "a.yaml", func() {}), release.ErrHeld)
	n.did = nil
	require.NoError(t, n.Unlock(t.Context()))
	assert.Equal(t, []string{"save releasing", "unlock"}, n.did, "a person releases it anyway")
}

// A lock that is no longer configured cannot be released.
func TestForgottenLock(t *testing.T) {
	t.Parallel()
	for title, c := range map[string]struct {
		set  func(*node)
		want fleet.LockState
	}{
		"as it is configured": {func(*node) {}, fleet.LockWaiting},
		"of another group":    {func(n *node) { n.Lock.Group = "h" }, ""},
		"a lease":             {func(n *node) { n.Lock = fleet.Lock{Pods: fleet.LockAll, Target: fleet.Target{Lease: "a/b"}} }, ""},
		"of another server":   {func(n *node) { n.Lock.Server = "https://other" }, ""},
		"none":                {func(n *node) { n.Server = nil }, ""},
		"nothing to forget":   {func(n *node) { *n.Record = fleet.LockRecord{} }, ""},
	} {
		n := newNode()
		n.Record.Ask("a.yaml", lock, now)
		c.set(n)
		n.Forget()
		assert.Equal(t, c.want, n.Record.State, title)
	}
}

func TestLockErrors(t *testing.T) {
	t.Parallel()
	holders := fleet.LockAnswer{Holders: []fleet.LockHolder{{ID: "a"}}}
	for want, c := range map[string]struct {
		err   fleet.LockError
		taken bool
	}{
		"lock server l: 409: refused (holder a)":       {fleet.LockError{Server: "l", Status: 409, Answer: holders}, true},
		"lock server l: 423: refused":                  {fleet.LockError{Server: "l", Status: 423}, true},
		"lock server l: 500: semaphore currently full": {fleet.LockError{Server: "l", Status: 500, Value: "semaphore currently full"}, true},
		"lock server l: 500: reboot: currently locked": {fleet.LockError{Server: "l", Status: 500, Value: "reboot: currently locked"}, true},
		"lock server l: 500: internal":                 {fleet.LockError{Server: "l", Status: 500, Kind: "internal"}, false},
		"lock server l: 409: no space left on device":  {fleet.LockError{Server: "l", Status: 409, Err: errFull}, false},
		"lock server: no space left on device":         {fleet.LockError{Err: errFull}, false},
		"lock server l: it is held (holder b, which is no node of the cluster)": {fleet.LockError{
			Server: "l", Taken: true, Value: "it is held", Answer: fleet.LockAnswer{Holders: []fleet.LockHolder{{ID: "b", Gone: true}}},
		}, true},
		"Lease x/y: held by b, which is no node of the cluster": {fleet.LockError{
			Lock: "Lease x/y", Server: "l", Taken: true, Answer: fleet.LockAnswer{Holders: []fleet.LockHolder{{ID: "b", Gone: true}}},
		}, true},
		"Lease x/y: held by a namesake (holder a)": {fleet.LockError{Lock: "Lease x/y", Server: "l", Taken: true, Value: "held by a namesake", Answer: holders}, true},
		"Lease x/y at l: 403: forbidden":           {fleet.LockError{Lock: "Lease x/y", Server: "l", Status: 403, Value: "forbidden"}, false},
		"Lease x/y: no space left on device":       {fleet.LockError{Lock: "Lease x/y", Err: errFull}, false},
	} {
		require.EqualError(t, &c.err, want)
		assert.Equal(t, c.taken, c.err.IsTaken(), want)
		require.ErrorIs(t, &c.err, release.ErrHeld, want)
	}
	two := fleet.LockAnswer{Holders: []fleet.LockHolder{{ID: "a"}, {ID: "me"}}}
	assert.Len(t, two.Others("me"), 1)
	two.Slots = 2
	assert.Empty(t, two.Others("me"), "there is room for both")
}

var now = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

func TestLockIsDue(t *testing.T) {
	t.Parallel()
	awaits, unverified, done := fleet.Pod{Awaits: true}, fleet.Pod{Unverified: true}, fleet.Pod{}
	for title, c := range map[string]struct {
		state fleet.LockState
		pod   fleet.Pod
		retry time.Duration // RetryAt from now; 0: none
		want  bool
	}{
		"there is none":                 {pod: done},
		"a pod waits for it":            {state: fleet.LockWaiting, pod: awaits},
		"no pod waits any more":         {state: fleet.LockWaiting, pod: unverified, want: true},
		"a pod is not verified healthy": {state: fleet.LockHeld, pod: unverified},
		"all are verified healthy":      {state: fleet.LockHeld, pod: awaits, want: true},
		"it was not taken back yet":     {state: fleet.LockReleasing, pod: done, want: true},
		"the server is not asked":       {state: fleet.LockReleasing, pod: done, retry: time.Minute},
		"the clock was wrong":           {state: fleet.LockReleasing, pod: done, retry: 24 * time.Hour, want: true},
	} {
		l := fleet.LockRecord{State: c.state, Pods: []string{"etcd.yaml"}}
		if c.retry != 0 {
			l.RetryAt = now.Add(c.retry)
		}
		assert.Equal(t, c.want, l.IsDue(now, func(string) fleet.Pod { return c.pod }), title)
	}
}

func TestLockRetries(t *testing.T) {
	t.Parallel()
	lost, refused := &fleet.LockError{Err: errors.New("away")}, &fleet.LockError{Status: 409}
	later := &fleet.LockError{Status: 503, RetryAt: now.Add(time.Hour)}
	for title, c := range map[string]struct {
		failures int // before
		err      error
		jitter   float64
		want     time.Duration
	}{
		"a refusal":           {3, refused, 0.5, time.Minute},
		"the least wait":      {0, refused, 0, 30 * time.Second},
		"no answer":           {0, lost, 0.5, time.Minute},
		"no answer again":     {2, lost, 0.5, 4 * time.Minute},
		"no answer for hours": {50, lost, 0.5, 15 * time.Minute},
		"Retry-After":         {0, later, 0.5, time.Hour},
	} {
		l := fleet.LockRecord{State: fleet.LockWaiting, Pods: []string{"etcd.yaml"}, Failures: c.failures}
		l.Fail(c.err, now, c.jitter)
		assert.Equal(t, now.Add(c.want), l.RetryAt, title)
		reason, waits := l.Hold("etcd.yaml", now)
		assert.True(t, waits, title)
		assert.Equal(t, c.err.Error(), reason, title)
		_, waits = l.Hold("velum.yaml", now)
		assert.False(t, waits, title)
		_, waits = l.Hold("etcd.yaml", l.RetryAt)
		assert.False(t, waits, title)
	}
}

// A server that grants the lock to another node has taken it away from this one.
func TestLockGrantedToAnotherNode(t *testing.T) {
	t.Parallel()
	l := fleet.LockRecord{State: fleet.LockHeld, Given: true}
	l.Fail(&fleet.LockError{Err: errors.New("away")}, now, 0)
	assert.Equal(t, fleet.LockHeld, l.State)
	l.Fail(&fleet.LockError{Status: 409}, now, 0)
	assert.Equal(t, fleet.LockWaiting, l.State)
	assert.False(t, l.Given)
}

func TestCovers(t *testing.T) {
	t.Parallel()
	for pods, want := range map[string][2]bool{"": {}, fleet.LockControlPlane: {true, false}, fleet.LockAll: {true, true}} {
		l := fleet.Lock{Pods: pods}
		assert.Equal(t, want, [2]bool{l.Covers(true), l.Covers(false)}, pods)
	}
}

func TestAgainst(t *testing.T) {
	t.Parallel()
	part := func(name string, local, healthy bool) fleet.Part {
		return fleet.Part{Name: name, Local: local, Healthy: healthy, Seen: map[bool]string{false: "refused"}[healthy]}
	}
	three := func(a, b, c bool) []fleet.Part {
		return []fleet.Part{part("member a", true, a), part("member b", false, b), part("member c", false, c)}
	}
	servers := func(local, other bool) []fleet.Part {
		return []fleet.Part{part("API server a", true, local), part("API server b", false, other)}
	}
	const one, two = "member b: refused", "member b: refused; member c: refused"
	for title, c := range map[string]struct {
		seen      fleet.Observation
		etcd, api string // the reason against the restart of each
	}{
		"nothing is known to be there": {},
		"all are healthy":              {seen: fleet.Observation{Members: three(true, true, true), Servers: servers(true, true)}},
		"one member":                   {seen: fleet.Observation{Members: three(true, true, true)[:1]}},
		"another member is down":       {fleet.Observation{Members: three(true, false, true)}, one, one},
		"two are down":                 {fleet.Observation{Members: three(true, false, false)}, two, two},
		"its own member is down":       {seen: fleet.Observation{Members: three(false, true, true)}},
		"its own API server as well":   {seen: fleet.Observation{Members: three(false, true, true), Servers: servers(false, true)}},
		"its own API server is down":   {fleet.Observation{Members: three(true, true, true), Servers: servers(false, true)}, "API server a of this node: refused", ""},
		"another API server is down":   {fleet.Observation{Servers: servers(true, false)}, "API server b: refused", "API server b: refused"},
		"the members are not known":    {fleet.Observation{Err: errors.New("no answer")}, "etcd: no answer", "etcd: no answer"},
		"not known, with API servers":  {fleet.Observation{Err: errors.New("x"), Servers: servers(true, true)}, "etcd: x", "etcd: x"},
	} {
		assert.Equal(t, c.etcd, fleet.Against(c.seen, false), title)
		assert.Equal(t, c.api, fleet.Against(c.seen, true), title)
	}
}
