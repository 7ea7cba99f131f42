// SPDX-License-Identifier: Apache-2.0

// Package keeper runs the processes of a temporary test node so that nothing of the node can stay behind.
//
// The keeper is a separate process of the owner (a test or the demo). It starts init, process 1 of a new PID and mount
// namespace, and init starts the programs that the owner requests: registry, containerd, kubelet, agent. The owner
// holds the other end of init's standard input. When the owner closes it, exits, panics, is interrupted or killed, init
// reads the end of the file and exits; the kernel then kills every process of the PID namespace (including shims and
// containers, which are orphans) and drops every mount of the mount namespace. The keeper, which outlives init, removes
// the cgroups and the directory. A node always stops in this one way.
//
// The network is the host's: ports of the node are reached at 127.0.0.1. So is the number of inotify instances, which
// the owner raises.
//
// Only a keeper that is itself killed leaves something, a directory and empty cgroups; [Sweep] removes them.
package keeper

import "time"

// DirPrefix begins the name of every node's directory in os.TempDir. The node's cgroups have the same name. Sweep
// recognizes our directories by it.
const DirPrefix = "iua-node-"

// Command is a program to run in the node.
type Command struct {
	Argv   []string `json:"argv"`   // Argv[0] is an absolute path
	Env    []string `json:"env"`    // the whole environment, as in os/exec
	Stdout string   `json:"stdout"` // path of a file, opened to append
	Stderr string   `json:"stderr"` // path of a file, opened to append; may be Stdout's
}

// Exit describes how a process ended and what it used.
type Exit struct {
	Code    int           `json:"code"`   // exit code; -1 if a signal ended it or Missing
	Signal  int           `json:"signal"` // the signal that ended it, else 0
	CPU     time.Duration `json:"cpu"`    // user and system time
	MaxRSS  int64         `json:"maxRSS"` // peak resident set in bytes
	Missing bool          `json:"-"`      // the keeper ended first: nothing else is known
}

// request and event are one JSON object per line. A request starts a command, or signals the process that the request
// with that id started. Each request gets an event with its id and without an exit as its reply; the exit of a process
// is a later event with the id of the request that started it. The first event has id 0: init is up.
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
