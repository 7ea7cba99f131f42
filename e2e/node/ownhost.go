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

// Below the node's root.
const (
	ownTable   = "var/lib/image-update-agent/localhost.json"
	runtimeDir = "run/image-update-agent-localhost"
)

// OwnHost is, for a node without systemd, what systemd is to the own host: clients wait in its socket, for which it
// starts a process. One that runs too long is killed, and one that has failed closes the port for a while.
type OwnHost struct {
	node       *Node
	runtimeMax time.Duration
	again      time.Duration

	lock     sync.Mutex
	changed  *sync.Cond
	argv     []string
	requests Requests
	killed   int
	socket   *net.TCPListener // nil: the port is closed
	process  *os.Process      // nil: none runs
	stopped  bool             // the process was
	isOver   bool
}

// Serving is what a process of the own host does.
type Serving string

// What processes do.
const (
	Serves  Serving = ""
	Hangs   Serving = `kill -STOP $$; exec "$@"`
	Crashes Serving = `kill -SEGV $$`
)

// OwnHost starts the own host of the node, for images of its registry and of other names ("registry.suse.com"). All
// nodes of a machine have one address for it, so it waits until no other node serves such a name.
func (n *Node) OwnHost(names ...string) *OwnHost {
	n.tb.Helper()
	o := &OwnHost{
		node:       n,
		runtimeMax: time.Duration(n.unitNumber("image-update-agent-localhost.service", "RuntimeMaxSec")) * time.Second,
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

// unitNumber is the value of a key in a unit of the checkout.
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

// Serve sets what the processes of later connections do, and returns when none of before is left and the port is open.
func (o *OwnHost) Serve(what Serving) {
	o.node.tb.Helper()
	argv := []string{o.node.AgentProgram(), "localhost", "serve", "--table", o.node.Path(ownTable)}
	if what != Serves {
		argv = append([]string{"/bin/sh", "-c", string(what), "sh"}, argv...)
	}
	o.lock.Lock()
	defer o.lock.Unlock()
	isFirst := o.argv == nil
	o.argv = argv
	for !isFirst && !o.isOver && (o.process != nil || o.socket == nil) {
		o.stop()
		o.changed.Wait()
	}
}

// Requests are those that the own host got since the start, or since Forget, but for the agent's own. Their status
// is not known here.
func (o *OwnHost) Requests() Requests {
	o.lock.Lock()
	defer o.lock.Unlock()
	return slices.Clone(o.requests)
}

// Forget forgets the requests and the kills so far.
func (o *OwnHost) Forget() {
	o.lock.Lock()
	defer o.lock.Unlock()
	o.requests, o.killed = nil, 0
}

// Killed is how many processes had to be killed, because they ran too long.
func (o *OwnHost) Killed() int {
	o.lock.Lock()
	defer o.lock.Unlock()
	return o.killed
}
