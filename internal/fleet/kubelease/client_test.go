// SPDX-License-Identifier: Apache-2.0

package kubelease_test

import (
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/agenttest"
	"github.com/kubic-project/image-update-agent/agent/fleet"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/fleet/kubelease"
)

const name = "kube-system/image-update-agent"

// as returns the client of a node.
func as(t *testing.T, s *server, node string, set ...func(*kubelease.Options)) *kubelease.Client {
	t.Helper()
	o := kubelease.Options{
		Lease: name, Kubeconfig: s.kubeconfig(t), Node: node, Machine: "machine of " + node, Version: "test",
		Timeout: time.Minute, Patience: time.Nanosecond,
	}
	for _, f := range set {
		f(&o)
	}
	c, err := kubelease.New(o)
	require.NoError(t, err)
	return c
}

func TestLease(t *testing.T) {
	t.Parallel()
	s := start(t)
	agenttest.TestFleetLock(t, func(id string) fleet.Locker { return as(t, s, id) })
}

// The Lease names the holder, and keeps what others wrote to it.
func TestWhatIsWritten(t *testing.T) {
	t.Parallel()
	s := start(t)
	now := time.Date(2026, 5, 1, 12, 0, 0, 123456789, time.FixedZone("", 3600))
	c := as(t, s, "node-1", func(o *kubelease.Options) { o.Now = func() time.Time { return now } })
	h, err := c.Read(t.Context())
	require.NoError(t, err)
	assert.Nil(t, h, "there is none")
	answer, err := c.Lock(t.Context())
	require.NoError(t, err)
	assert.Equal(t, fleet.LockAnswer{
		Holders: []fleet.LockHolder{{ID: "node-1", Since: now.UTC().Truncate(time.Microsecond)}}, Slots: 1,
	}, answer)
	base := "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
	assert.Equal(t, []string{
		"GET " + base + "/image-update-agent", "GET " + base + "/image-update-agent", "POST " + base,
		"GET " + base + "/image-update-agent", "PUT " + base + "/image-update-agent",
	}, s.askedFor())
	s.edit(name, func(spec map[string]any) { spec["leaseTransitions"] = 7 })
	now = now.Add(time.Hour)
	answer, err = c.Lock(t.Context())
	require.NoError(t, err)
	assert.True(t, answer.Retained)
	l := s.leaseOf(name)
	assert.Equal(t, map[string]any{
		"holderIdentity": "node-1", "acquireTime": "2026-05-01T11:00:00.123456Z", "renewTime": "2026-05-01T12:00:00.123456Z",
		"leaseTransitions": 7.0,
	}, l["spec"])
	assert.Equal(t, map[string]any{"image-update-agent.opensuse.org/machine": "machine of node-1"},
		l["metadata"].(map[string]any)["annotations"])
	require.NoError(t, c.Unlock(t.Context()))
	l = s.leaseOf(name)
	assert.Equal(t, map[string]any{"renewTime": "2026-05-01T12:00:00.123456Z", "leaseTransitions": 7.0}, l["spec"])
}

// A Lease that is being deleted vanishes with its holder when the last finalizer is gone: nobody gets it any more.
func TestALeaseThatIsBeingDeletedIsNotGranted(t *testing.T) {
	t.Parallel()
	deleting := func(l map[string]any) {
		metadata := l["metadata"].(map[string]any)
		metadata["deletionTimestamp"], metadata["finalizers"] = "2026-01-02T03:04:05Z", []string{"example.com/keep"}
	}
	s := start(t)
	s.edit(name, func(map[string]any) {})
	s.editAll(name, deleting)
	n := as(t, s, "node-1")
	_, err := n.Lock(t.Context())
	require.ErrorContains(t, err, "the Lease is being deleted")
	assert.Empty(t, s.holder(name))

	s.edit(name, nil)
	_, err = n.Lock(t.Context())
	require.NoError(t, err)
	s.editAll(name, deleting)
	_, err = n.Lock(t.Context())
	require.ErrorContains(t, err, "the Lease is being deleted", "also while the node holds it")
	_, err = as(t, s, "node-2").Lock(t.Context())
	require.ErrorContains(t, err, "held by node-1")
	require.NoError(t, n.Unlock(t.Context()))
	assert.Empty(t, s.holder(name))

	s = start(t)
	s.edit(name, func(map[string]any) {})
	s.written = deleting // a server that writes what it is about to delete
	_, err = as(t, s, "node-1").Lock(t.Context())
	require.ErrorContains(t, err, "the Lease is being deleted")
}

// What a person or another program does to the Lease.
func TestEditedLease(t *testing.T) {
	t.Parallel()
	holder := func(name string) func(map[string]any) {
		return func(spec map[string]any) { spec["holderIdentity"] = name }
	}
	for title, c := range map[string]struct {
		edit         func(map[string]any) // of a Lease that the node holds; nil: it is deleted
		lock, unlock string               // errors
	}{
		"deleted":               {nil, "", "this node does not hold the lock: Lease " + name + ": somebody deleted it"},
		"freed":                 {func(spec map[string]any) { delete(spec, "holderIdentity") }, "", "it has no holder"},
		"freed by an empty one": {holder(""), "", "it has no holder"},
		"given to a node":       {holder("node-2"), "Lease " + name + ": held by node-2 since ", "its holder is node-2"},
		"held by nobody":        {holder("gone"), ", which is no node of the cluster", "its holder is gone"},
		"held by a person":      {holder("Alice: maintenance!"), ": held by Alice: maintenance! since", "its holder is Alice"},
		"of another program":    {func(spec map[string]any) { spec["leaseDurationSeconds"] = 15 }, "leaseDurationSeconds: it belongs", "leaseDurationSeconds"},
		"a holder as a number":  {func(spec map[string]any) { spec["holderIdentity"] = 1 }, "not a Lease", "not a Lease"},
		"a wrong time":          {func(spec map[string]any) { spec["acquireTime"] = "yesterday" }, "", ""},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			s := start(t)
			s.nodes = []string{"node-1", "node-2"}
			check := func(err error, want string) {
				t.Helper()
				if want == "" {
					require.NoError(t, err)
					return
				}
				require.ErrorContains(t, err, want)
			}
			n := as(t, s, "node-1")
			for _, do := range []string{"lock", "unlock"} {
				s.edit(name, nil)
				_, err := n.Lock(t.Context())
				require.NoError(t, err)
				s.edit(name, c.edit)
				if do == "lock" {
					_, err = n.Lock(t.Context())
					check(err, c.lock)
					continue
				}
				before := s.holder(name)
				err = n.Unlock(t.Context())
				check(err, c.unlock)
				if errors.Is(err, fleet.ErrLost) {
					assert.Equal(t, before, s.holder(name), "it stays")
				}
			}
		})
	}
}

// Another machine with the same name does not have the lock.
func TestTwoMachinesWithOneName(t *testing.T) {
	t.Parallel()
	s := start(t)
	n := as(t, s, "node-1")
	clone := as(t, s, "node-1", func(o *kubelease.Options) { o.Machine = "another" })
	_, err := n.Lock(t.Context())
	require.NoError(t, err)
	_, err = clone.Lock(t.Context())
	require.ErrorContains(t, err, ": held by another machine with the name of this node (holder node-1 since ")
	require.ErrorIs(t, clone.Unlock(t.Context()), fleet.ErrLost)
	assert.Equal(t, "node-1", s.holder(name))
}

// Of two nodes that read a free Lease, one gets it.
func TestOthersAreFaster(t *testing.T) {
	t.Parallel()
	s := start(t)
	a, b := as(t, s, "a"), as(t, s, "b")
	faster := true
	s.before = func(r *http.Request) int {
		if faster && r.Method == http.MethodPut {
			faster = false
			_, err := b.Lock(t.Context())
			require.NoError(t, err)
		}
		return 0
	}
	_, err := a.Lock(t.Context())
	e := &fleet.LockError{}
	require.ErrorAs(t, err, &e)
	assert.True(t, e.IsTaken())
	assert.Equal(t, "b", e.Answer.Holders[0].ID)

	changes := 0
	s.before = func(r *http.Request) int {
		if r.Method == http.MethodPut {
			changes++
			s.edit(name, func(spec map[string]any) { delete(spec, "holderIdentity") })
		}
		return 0
	}
	_, err = b.Lock(t.Context())
	require.ErrorContains(t, err, "409: others changed it 5 times in a row")
	require.ErrorIs(t, err, release.ErrHeld)
	assert.Equal(t, 5, changes)
}

// An answer that is lost after the request was done, and one that comes late.
func TestLostAnswers(t *testing.T) {
	t.Parallel()
	s := start(t)
	lose := ""
	s.before = func(r *http.Request) int {
		if r.Method == lose {
			lose = ""
			return lost
		}
		return 0
	}
	n, other := as(t, s, "node-1"), as(t, s, "node-2")
	for _, method := range []string{http.MethodPost, http.MethodGet, http.MethodPut} {
		lose = method
		_, err := n.Lock(t.Context())
		e := &fleet.LockError{}
		require.ErrorAs(t, err, &e, method)
		require.Error(t, e.Err)
		assert.Equal(t, method != http.MethodPut, e.Unsent, "only a PUT takes the lock")
		assert.Equal(t, e.Unsent, s.holder(name) == "", method)
	}
	answer, err := n.Lock(t.Context())
	require.NoError(t, err, "it enters again")
	assert.True(t, answer.Retained)
	lose = http.MethodPut
	require.Error(t, n.Unlock(t.Context()))
	assert.Empty(t, s.holder(name), "it is released")
	require.ErrorIs(t, n.Unlock(t.Context()), fleet.ErrLost)

	// With time, Unlock repeats itself, and then knows that the first request was a release.
	patient := as(t, s, "node-1", func(o *kubelease.Options) { o.Patience = time.Minute })
	_, err = patient.Lock(t.Context())
	require.NoError(t, err)
	lose = http.MethodPut
	require.NoError(t, patient.Unlock(t.Context()))

	// A PUT that arrives after the node has given up does nothing.
	_, err = n.Lock(t.Context())
	require.NoError(t, err)
	require.NoError(t, n.Unlock(t.Context()))
	late := maps.Clone(s.leaseOf(name))
	require.ErrorIs(t, n.Unlock(t.Context()), fleet.ErrLost)
	assert.NotEqual(t, late["metadata"], s.leaseOf(name)["metadata"], "its resourceVersion is old now")
	_, err = other.Lock(t.Context())
	require.NoError(t, err)
}

// Answers without success.
func TestRefusals(t *testing.T) {
	t.Parallel()
	for title, c := range map[string]struct {
		method string
		code   int
		want   string
		known  bool // the API server refused
	}{
		"no access":      {http.MethodGet, 403, ": 403: as the test wants", true},
		"no update":      {http.MethodPut, 403, ": 403: as the test wants", true},
		"wrong token":    {http.MethodGet, 401, ": 401: as the test wants", true},
		"too many":       {http.MethodPut, 429, ": 429: as the test wants", true},
		"timeout":        {http.MethodPut, 504, ": 504: as the test wants", false},
		"error":          {http.MethodGet, 500, ": 500: as the test wants", false},
		"redirect":       {http.MethodGet, 307, ": 307: as the test wants", true},
		"another 404":    {http.MethodGet, 404, ": 404: as the test wants", true},
		"another 409":    {http.MethodPut, 409, ": 409: as the test wants", true},
		"gone":           {http.MethodPut, 410, ": 410: as the test wants", true},
		"no content":     {http.MethodGet, 204, ": 204: the answer is not from an API server", false},
		"created by put": {http.MethodPut, 202, ": 202: as the test wants", true},
	} {
		s := start(t)
		s.edit(name, func(map[string]any) {})
		s.before = func(r *http.Request) int {
			if r.Method == c.method {
				return c.code
			}
			return 0
		}
		n := as(t, s, "node-1")
		_, err := n.Lock(t.Context())
		require.ErrorContains(t, err, c.want, title)
		e := &fleet.LockError{}
		require.ErrorAs(t, err, &e, title)
		assert.Equal(t, c.code, e.Status, title)
		assert.Equal(t, c.known, e.Err == nil, title)
		require.ErrorContains(t, n.Unlock(t.Context()), c.want, title)
		assert.Empty(t, s.holder(name), title)
	}

	// Something else that is not found, such as the API itself, does not say that the Lease was deleted.
	other := start(t)
	other.before, other.reason = func(*http.Request) int { return 404 }, "NotFound"
	require.ErrorContains(t, as(t, other, "node-1").Unlock(t.Context()), ": 404: as the test wants")

	busy := start(t)
	busy.before, busy.retryAfter = func(*http.Request) int { return 429 }, "86400"
	now := time.Now()
	_, err := as(t, busy, "node-1", func(o *kubelease.Options) { o.Now = func() time.Time { return now } }).Lock(t.Context())
	tooMany := &fleet.LockError{}
	require.ErrorAs(t, err, &tooMany)
	assert.WithinDuration(t, now.Add(time.Hour), tooMany.RetryAt, 0, "an hour at most")

	s := start(t)
	s.namespaces = nil
	_, err = as(t, s, "node-1").Lock(t.Context())
	require.ErrorContains(t, err, `: 404: namespaces "kube-system" not found`)
	s.Close()
	n := as(t, s, "node-1", func(o *kubelease.Options) { o.Patience = 0 })
	_, err = n.Lock(t.Context())
	e := &fleet.LockError{}
	require.ErrorAs(t, err, &e)
	assert.True(t, e.Unsent, "there is no connection")
}

func TestATokenIsNotSaid(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.before = func(*http.Request) int { return 403 }
	s.message = "unknown token " + token
	_, err := as(t, s, "node-1").Lock(t.Context())
	require.ErrorContains(t, err, "403: unknown token ***")
	assert.NotContains(t, err.Error(), token)
}

// Only a PUT that may have reached the API server may have taken the lock.
func TestUnsentRequests(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.edit(name, func(map[string]any) {})
	n := as(t, s, "node-1")
	s.before = func(r *http.Request) int { // the API server ends after the GET
		if r.Method == http.MethodGet {
			s.Config.SetKeepAlivesEnabled(false)
			assert.NoError(t, s.Listener.Close())
		}
		return 0
	}
	_, err := n.Lock(t.Context())
	e := &fleet.LockError{}
	require.ErrorAs(t, err, &e)
	assert.True(t, e.Unsent, "the PUT got no connection: %s", err)
	assert.Empty(t, s.holder(name))
}

// A success that is not the Lease is an error.
func TestWrongAnswers(t *testing.T) {
	t.Parallel()
	for title, edit := range map[string]func(l map[string]any){
		"another name":          func(l map[string]any) { l["metadata"].(map[string]any)["name"] = "x" },
		"another namespace":     func(l map[string]any) { l["metadata"].(map[string]any)["namespace"] = "x" },
		"another kind":          func(l map[string]any) { l["kind"] = "Pod" },
		"another version":       func(l map[string]any) { l["apiVersion"] = "coordination.k8s.io/v1beta1" },
		"no metadata":           func(l map[string]any) { delete(l, "metadata") },
		"wrong annotations":     func(l map[string]any) { l["metadata"].(map[string]any)["annotations"] = 1 },
		"a list as spec":        func(l map[string]any) { l["spec"] = []string{} },
		"no resourceVersion":    func(l map[string]any) { delete(l["metadata"].(map[string]any), "resourceVersion") },
		"an empty one":          func(l map[string]any) { l["metadata"].(map[string]any)["resourceVersion"] = "" },
		"a number as a version": func(l map[string]any) { l["metadata"].(map[string]any)["resourceVersion"] = 7 },
		"a number as a name":    func(l map[string]any) { l["metadata"].(map[string]any)["name"] = 1 },
	} {
		s := start(t)
		n := as(t, s, "node-1")
		_, err := n.Lock(t.Context())
		require.NoError(t, err, title)
		s.editAll(name, edit)
		_, err = n.Lock(t.Context())
		require.ErrorContains(t, err, ": 200: the answer is not a Lease", title)
		require.ErrorContains(t, n.Unlock(t.Context()), ": 200: the answer is not a Lease", title)
	}

	// An answer is read up to its limit.
	for padding, want := range map[int]string{256 << 10: "", 256<<10 + 1: "too large"} {
		s := start(t)
		s.edit(name, func(map[string]any) {})
		size, err := json.Marshal(s.leaseOf(name))
		require.NoError(t, err)
		s.padding = padding - len(size) - 1 // and the newline of the encoder
		_, err = as(t, s, "node-1").Read(t.Context())
		if want == "" {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, want)
	}

	long := start(t)
	long.header = 32 << 10
	_, err := as(t, long, "node-1").Read(t.Context())
	require.ErrorContains(t, err, "exceeded")

	// An API server, or its webhook, that writes another holder.
	s := start(t)
	s.rewrite = func(spec map[string]any) { spec["holderIdentity"] = "someone" }
	_, err = as(t, s, "node-1").Lock(t.Context())
	require.ErrorContains(t, err, `wrote holderIdentity "someone" instead of this node`)
}

func TestRead(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.nodes = []string{"node-1"}
	n, other := as(t, s, "node-1"), as(t, s, "node-2")
	s.edit(name, func(map[string]any) {})
	h, err := other.Read(t.Context())
	require.NoError(t, err)
	assert.Nil(t, h, "it is free")
	_, err = n.Lock(t.Context())
	require.NoError(t, err)
	h, err = other.Read(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "node-1", h.ID)
	assert.False(t, h.Gone)
	require.NoError(t, n.Unlock(t.Context()))
	_, err = other.Lock(t.Context())
	require.NoError(t, err)
	h, err = n.Read(t.Context())
	require.NoError(t, err)
	assert.True(t, h.Gone)
}

// Nothing is sent without a kubeconfig that the agent may use.
func TestNoKubeconfig(t *testing.T) {
	t.Parallel()
	s := start(t)
	path := filepath.Join(t.TempDir(), "none")
	n := as(t, s, "node-1", func(o *kubelease.Options) { o.Kubeconfig, o.Patience = path, time.Hour })
	_, err := n.Lock(t.Context())
	require.EqualError(t, err, "Lease "+name+": kubeconfig "+path+": no such file or directory")
	e := &fleet.LockError{}
	require.ErrorAs(t, err, &e)
	assert.True(t, e.Unsent)
	require.ErrorContains(t, n.Unlock(t.Context()), "no such file", "it does not wait for it")
	assert.Empty(t, s.askedFor())

	_, err = kubelease.New(kubelease.Options{Lease: "x", Node: "n", Machine: "m"})
	require.ErrorContains(t, err, "want NAMESPACE/NAME")
	_, err = kubelease.New(kubelease.Options{Lease: name, Machine: "m"})
	require.ErrorContains(t, err, "the name of the node")
}
