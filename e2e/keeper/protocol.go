// SPDX-License-Identifier: Apache-2.0

// Package keeper runs the processes of a throw-away test node so that nothing of them can stay behind.
//
// The keeper is a process of its own beside the owner (a test or the demo). It starts init, process 1 of a new
// PID and mount namespace, and init starts what the owner asks for: registry, containerd, kubelet, agent. The owner
// holds the other end of init's standard input. When the owner closes it, exits, panics, is interrupted or killed,
// init reads the end of the file and exits; the kernel then kills every process of the PID namespace (shims and
// containers too, which are nobody's children) and drops every mount of the mount namespace. The keeper, which
// outlives init, removes the cgroups and the directory. There is one way to stop a node, and it is always the same.
//
// The network is the host's: ports of the node are reached at 127.0.0.1.
//
// Only a keeper that is itself killed leaves something, a directory and empty cgroups; [Sweep] removes that.
package keeper

import "time"

// DirPrefix begins the name of every node's directory in os.TempDir. The same name is that of its cgroups. It is
// how Sweep knows what is ours.
const DirPrefix = "iua-node-"

// Command is a program to run in the node.
type Command struct {
	Argv   []string `json:"argv"`   // Argv[0] is an absolute path
	Env    []string `json:"env"`    // the whole environment, as in os/exec
	Stdout string   `json:"stdout"` // file that is appended to
	Stderr string   `json:"stderr"` // file that is appended to; may be Stdout's
}

// Exit tells how a process ended and what it took.
type Exit struct {
	Code    int           `json:"code"`   // exit code; -1 when a signal ended it or it was lost
	Signal  int           `json:"signal"` // the signal that ended it, else 0
	CPU     time.Duration `json:"cpu"`    // user and system time
	MaxRSS  int64         `json:"maxRSS"` // peak resident set in bytes
	Missing bool          `json:"-"`      // the keeper ended first: nothing else is known
}

// request and event are one JSON object a line. A request starts a command, or signals the process that the
// request with that id started. Every request is answered by an event with its id and without an exit; the exit
// of a process is a later event with the id of the request that started it. The first event has id 0: init is up.
type request struct {
	ID      int      `json:"id"`
	Command *Command `json:"command,omitempty"`
	Target  int      `json:"target,omitempty"`
	Signal  int      `json:"signal,omitempty"`
}

type event struct {
	ID    int    `json:"id"`
	Error string `json:"error,omitempty"`
	Exit  *Exit  `json:"exit,omitempty"`
}
