// SPDX-License-Identifier: Apache-2.0

package answer

import (
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// ended is a connection that records whether it was closed.
type ended struct {
	net.Conn

	is bool
}

func (c *ended) Close() error { c.is = true; return nil }

// full returns a full room and its guests.
func full() (*room, []*ended, []*guest) {
	r := newRoom()
	var clients []*ended
	var guests []*guest
	for range places {
		client := &ended{}
		clients, guests = append(clients, client), append(guests, r.enter(client))
	}
	return r, clients, guests
}

// The slowest guest is disconnected for the next client, one for each, and not before its grace is over.
func TestSlowestGuestIsReplaced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, clients, _ := full()
		begun := time.Now()
		for n := range 3 {
			r.enter(&ended{})
			assert.Equal(t, grace, time.Since(begun))
			assert.Len(t, r.guests, places)
			assert.True(t, clients[n].is)
			assert.False(t, clients[n+1].is)
		}
		assert.Equal(t, 3, r.wereCut())
	})
}

// A guest that has sent its request is answered, and not disconnected.
func TestGuestWithARequestKeepsItsPlace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, clients, guests := full()
		r.hasAsked(guests[0])
		<-time.After(grace)
		r.enter(&ended{})
		assert.False(t, clients[0].is)
		assert.True(t, clients[1].is)

		for _, g := range r.guests {
			r.hasAsked(g)
		}
		go func() {
			<-time.After(10 * grace)
			r.leave(guests[0])
		}()
		begun := time.Now()
		r.enter(&ended{})
		assert.Equal(t, 10*grace, time.Since(begun), "the next waits for an answer")
		assert.Equal(t, 1, r.wereCut())
	})
}

// A guest that leaves frees its place at once.
func TestLeavingGuestFreesItsPlace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, clients, guests := full()
		begun := time.Now()
		go r.leave(guests[7])
		r.enter(&ended{})
		assert.Zero(t, time.Since(begun))
		assert.True(t, clients[7].is)
		assert.Zero(t, r.wereCut())
	})
}
