// SPDX-License-Identifier: Apache-2.0

package answer

import (
	"net"
	"slices"
	"sync"
	"time"
)

// room has a place for each client being served. When all are taken, the next client replaces the slowest, which has
// been there longest without sending its request: so a user who holds connections cannot keep others out.
type room struct {
	left chan struct{} // a client has left since the last check
	all  sync.WaitGroup

	mu     sync.Mutex
	guests []*guest // in order of arrival
	cut    int
}

// guest is a client in a room.
type guest struct {
	net.Conn

	since time.Time
	asked bool // it has sent its request and is about to be answered
}

func newRoom() *room { return &room{left: make(chan struct{}, 1)} }

// enter gives a client a place as soon as there is one.
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

// tryEnter returns when to try again; zero: the guest has a place.
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

// makePlace waits for a place, and disconnects the slowest guest for it.
func (r *room) makePlace() {
	r.mu.Lock()
	wait := r.cutSlowest()
	r.mu.Unlock()
	r.await(max(wait, grace))
}

// cutSlowest makes a place, or returns when to try again: each guest has grace for its request, so that a sudden crowd
// waits in the socket, and guests that have sent their request are answered. The caller holds the lock.
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

// hasAsked is called when the request of a guest has arrived.
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

// await waits until a client leaves, or for at most limit.
func (r *room) await(limit time.Duration) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-r.left:
	case <-timer.C:
	}
}

// end gives guests some time to be answered, and then disconnects them.
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

// wereCut returns how many guests were disconnected for others.
func (r *room) wereCut() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.cut
}
