// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Paths below the node's root.
const (
	ownTable   = "var/lib/image-update-agent/local-registry.json"
	runtimeDir = "run/image-update-agent-local-registry"
)

// LocalRegistry does for a node without systemd what systemd does for the local registry: it holds the socket in which
// clients wait, and starts a process for it. It kills a process that runs too long, and closes the port for a while
// after a failure.
type LocalRegistry struct {
	node       *Node
	runtimeMax time.Duration
	again      time.Duration

	lock     sync.Mutex
	changed  *sync.Cond
	argv     []string
	limit    time.Duration // after which a process is killed
	requests Requests
	killed   int
	socket   *net.TCPListener // nil: the port is closed
	process  *os.Process      // nil: none runs
	stopped  bool             // the process was stopped by us
	isOver   bool
}

// Serving is the behaviour of a local registry's process.
type Serving string

// The behaviours.
const (
	Serves  Serving = ""
	Hangs   Serving = `kill -STOP $$; exec "$@"`
	Crashes Serving = `kill -SEGV $$`
)

// LocalRegistry starts the node's local registry for images of the node's registry and of other names
// ("registry.suse.com"). All nodes of a machine share its address, so it waits until no other node serves one of these
// names.
func (n *Node) LocalRegistry(names ...string) *LocalRegistry {
	n.tb.Helper()
	o := &LocalRegistry{
		node:       n,
		runtimeMax: time.Duration(n.unitNumber("image-update-agent-local-registry.service", "RuntimeMaxSec")) * time.Second,
		again:      time.Second, // OnActiveSec=
	}
	o.changed = sync.NewCond(&o.lock)
	o.Serve(Serves)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		o.supervise()
	}()
	n.tb.Cleanup(func() {
		o.over()
		<-ended
	})
	shared.join(n.tb, append(names, n.Registry.Host), o)
	return o
}

// unitNumber returns the value of a key in a unit file of the checkout.
func (n *Node) unitNumber(unit, key string) int {
	n.tb.Helper()
	text, err := os.ReadFile(filepath.Join(n.checkout(), "systemd", unit))
	_, rest, _ := strings.Cut(string(text), "\n"+key+"=")
	value, _, _ := strings.Cut(rest, "\n")
	number, bad := strconv.Atoi(value)
	if err := errors.Join(err, bad); err != nil {
		n.tb.Fatalf("node: %s: %s: %v", unit, key, err)
	}
	return number
}

// Serve sets the behaviour of the processes for later connections, and returns when the earlier process has ended and
// the port is open.
func (o *LocalRegistry) Serve(what Serving) {
	o.node.tb.Helper()
	argv := []string{o.node.localRegistryProgram(), o.node.Path(ownTable)}
	if what != Serves {
		argv = append([]string{"/bin/sh", "-c", string(what), "sh"}, argv...)
	}
	o.lock.Lock()
	defer o.lock.Unlock()
	isFirst := o.argv == nil
	o.argv, o.limit = argv, time.Minute // a slow machine's process does not hang
	if what == Hangs {
		o.limit = o.runtimeMax
	}
	for !isFirst && !o.isOver && (o.process != nil || o.socket == nil) {
		o.stop()
		o.changed.Wait()
	}
}

// Requests returns the requests that the local registry got since the start, or since Forget, without the agent's own.
// Their status is unknown.
func (o *LocalRegistry) Requests() Requests {
	o.lock.Lock()
	defer o.lock.Unlock()
	return slices.Clone(o.requests)
}

// Forget clears the recorded requests and kills.
func (o *LocalRegistry) Forget() {
	o.lock.Lock()
	defer o.lock.Unlock()
	o.requests, o.killed = nil, 0
}

// Killed returns the number of processes that were killed because they ran too long.
func (o *LocalRegistry) Killed() int {
	o.lock.Lock()
	defer o.lock.Unlock()
	return o.killed
}
