// SPDX-License-Identifier: Apache-2.0

package api

import (
	"net"
	"slices"
	"sync"
)

// crowd is a listener with room for a number of connections. When it is full, the next one takes the place of the one
// that is open the longest of the user who has most: whoever holds connections keeps no other user out.
type crowd struct {
	net.Listener
	room int

	mu   sync.Mutex
	open []*member // the longest open first
}

// member is a connection of a crowd.
type member struct {
	net.Conn

	of  *crowd
	uid uint32
}

// Accept waits for the next connection.
func (c *crowd) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if err != nil {
		return nil, err
	}
	m := &member{Conn: conn, of: c, uid: nobody}
	if from, known := conn.RemoteAddr().(peer); known {
		m.uid = from.uid
	}
	if dropped := c.add(m); dropped != nil {
		_ = dropped.Close()
	}
	return m, nil
}

// add returns the member whose place m has taken; nil: there was room.
func (c *crowd) add(m *member) (dropped *member) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open = append(c.open, m)
	if len(c.open) <= c.room {
		return nil
	}
	has := map[uint32]int{}
	for _, o := range c.open {
		has[o.uid]++
	}
	dropped = c.open[0]
	for _, o := range c.open {
		if has[o.uid] > has[dropped.uid] {
			dropped = o
		}
	}
	c.remove(dropped)
	return dropped
}

// remove takes a member out. The caller holds the lock.
func (c *crowd) remove(m *member) {
	c.open = slices.DeleteFunc(c.open, func(o *member) bool { return o == m })
}

// Close ends the connection.
func (m *member) Close() error {
	m.of.mu.Lock()
	m.of.remove(m)
	m.of.mu.Unlock()
	return m.Conn.Close()
}
