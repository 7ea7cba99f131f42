// SPDX-License-Identifier: Apache-2.0

package localhost

import (
	"net"
	"slices"
	"sync"
	"time"
)

// room has a place for each client that is served. When all are taken, the next client takes that of the slowest, which
// is there the longest and has not sent its request: a user who holds connections keeps no other out.
type room struct {
	left chan struct{} // a client has left since the last look
	all  sync.WaitGroup

	mu     sync.Mutex
	guests []*guest // who came first is first
	cut    int
}

// guest is a client in a room.
type guest struct {
	net.Conn

	since time.Time
	asked bool // it has sent its request, and is about to be answered
}

func newRoom() *room { return &room{left: make(chan struct{}, 1)} }

// enter gives a client a place, as soon as there is one.
func (r *room) enter(conn net.Conn) *guest {
	g := &guest{Conn: conn}
	for {
		wait := r.tryEnter(g)
		if wait == 0 {
			return g
		}
		r.await(wait)
	}
}

// tryEnter returns when to try again; zero: the guest is in.
func (r *room) tryEnter(g *guest) (wait time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.guests) >= places {
		if wait = r.cutSlowest(); wait > 0 {
			return wait
		}
	}
	g.since = time.Now()
	r.guests = append(r.guests, g)
	r.all.Add(1)
	return 0
}

// makePlace waits for a place, and cuts the slowest guest for it.
func (r *room) makePlace() {
	r.mu.Lock()
	wait := r.cutSlowest()
	r.mu.Unlock()
	r.await(max(wait, grace))
}

// cutSlowest makes a place, or returns when to try again: each guest has grace for its request, so that a crowd which
// comes all at once waits in the socket, and those that have sent it are answered. It is called with the lock.
func (r *room) cutSlowest() (wait time.Duration) {
	slowest := slices.IndexFunc(r.guests, func(g *guest) bool { return !g.asked })
	if slowest < 0 {
		return grace
	}
	if wait = grace - time.Since(r.guests[slowest].since); wait > 0 {
		return wait
	}
	_ = r.guests[slowest].Close()
	r.guests = slices.Delete(r.guests, slowest, slowest+1)
	r.cut++
	return 0
}

// hasAsked is called when the request of a guest is there.
func (r *room) hasAsked(g *guest) {
	r.mu.Lock()
	defer r.mu.Unlock()
	g.asked = true
}

// leave ends a client's connection.
func (r *room) leave(g *guest) {
	_ = g.Close()
	r.mu.Lock()
	r.guests = slices.DeleteFunc(r.guests, func(o *guest) bool { return o == g })
	r.mu.Unlock()
	select {
	case r.left <- struct{}{}:
	default:
	}
	r.all.Done()
}

// await waits until a client leaves, or for a time.
func (r *room) await(limit time.Duration) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-r.left:
	case <-timer.C:
	}
}

// end gives guests a time to be answered, and then cuts them.
func (r *room) end(limit time.Duration) {
	for last := time.Now().Add(limit); !r.isEmpty() && time.Now().Before(last); {
		r.await(time.Until(last))
	}
	r.mu.Lock()
	for _, g := range r.guests {
		_ = g.Close()
	}
	r.mu.Unlock()
	r.all.Wait()
}

func (r *room) isEmpty() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.guests) == 0
}

// wereCut is how many guests had to go for others.
func (r *room) wereCut() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.cut
}
