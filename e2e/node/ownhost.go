// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"os"
	"os/exec"
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

// OwnHost is, for a node without systemd, what systemd is to the own host: it accepts connections at its address, and
// starts a process for each of them, which it kills when it runs too long.
type OwnHost struct {
	node           *Node
	runtimeMax     time.Duration
	maxConnections int

	lock     sync.Mutex
	argv     []string
	requests Requests
	running  int
	killed   int
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
		node: n, maxConnections: n.unitNumber("image-update-agent-localhost.socket", "MaxConnections"),
		runtimeMax: time.Duration(n.unitNumber("image-update-agent-localhost@.service", "RuntimeMaxSec")) * time.Second,
	}
	o.Serve(Serves)
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

// Serve sets what the processes of later connections do.
func (o *OwnHost) Serve(what Serving) {
	o.node.tb.Helper()
	argv := []string{o.node.AgentProgram(), "localhost", "serve", "--table", o.node.Path(ownTable)}
	if what != Serves {
		argv = append([]string{"/bin/sh", "-c", string(what), "sh"}, argv...)
	}
	o.lock.Lock()
	defer o.lock.Unlock()
	o.argv = argv
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

// spawn runs a process for a connection, to its end.
func (o *OwnHost) spawn(conn *os.File, r Request) {
	o.lock.Lock()
	if r.UserAgent != "image-update-agent" {
		o.requests = append(o.requests, r)
	}
	argv, isFull := o.argv, o.running == o.maxConnections
	if !isFull {
		o.running++
	}
	o.lock.Unlock()
	if isFull {
		_ = conn.Close()
		return
	}
	// A power cut takes what is below run.
	if err := os.MkdirAll(o.node.Path(runtimeDir), 0o755); err != nil {
		o.node.tb.Errorf("node: own host: %v", err)
	}
	name := filepath.Join(o.node.Dir, "log", "agent-localhost.log")
	log, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		o.node.tb.Errorf("node: own host: %v", err)
		return
	}
	defer func() { _ = log.Close() }()
	process := exec.CommandContext(o.node.tb.Context(), argv[0], argv[1:]...)
	process.Stdin, process.Stdout, process.Stderr = conn, log, log
	process.Env = []string{searchPath(), "RUNTIME_DIRECTORY=" + o.node.Path(runtimeDir)}
	err = process.Start()
	_ = conn.Close()
	if err != nil {
		o.node.tb.Errorf("node: own host: %v", err)
		return
	}
	kill := time.AfterFunc(o.runtimeMax, func() {
		o.lock.Lock()
		defer o.lock.Unlock()
		o.killed++
		_ = process.Process.Kill()
	})
	_ = process.Wait()
	kill.Stop()
	o.lock.Lock()
	defer o.lock.Unlock()
	o.running--
}
