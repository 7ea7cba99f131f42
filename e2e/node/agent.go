// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"path/filepath"

	"github.com/kubic-project/image-update-agent/e2e/keeper"
)

// Result is the exit code and the output of a finished run of the agent.
type Result struct {
	Stdout, Stderr string
	keeper.Exit
}

// Agent runs `image-update-agent ARGS --root Root` and waits for its end.
func (n *Node) Agent(args ...string) Result {
	n.tb.Helper()
	p := n.StartAgent(args...)
	exit := p.Wait(Patience)
	return Result{Stdout: n.text(p.Stdout), Stderr: n.text(p.Stderr), Exit: exit}
}

// StartAgent starts `image-update-agent ARGS --root Root`, for example the daemon, and returns at once.
func (n *Node) StartAgent(args ...string) *Process {
	n.tb.Helper()
	return n.StartAgentWith(nil, args...)
}

// StartAgentWith is StartAgent with variables (NAME=VALUE) in the environment.
func (n *Node) StartAgentWith(env []string, args ...string) *Process {
	n.tb.Helper()
	return n.startAgent(n.AgentProgram(), env, args)
}

// StartKillable is StartAgentWith for an agent built with the kill points of agent/agenttest/kill_points.go.
func (n *Node) StartKillable(env []string, args ...string) *Process {
	n.tb.Helper()
	return n.startAgent(n.KillableProgram(), env, args)
}

func (n *Node) startAgent(program string, env, args []string) *Process {
	n.tb.Helper()
	n.lock.Lock()
	base := filepath.Join(n.Dir, "log", fmt.Sprintf("agent%d", len(n.processes)))
	n.lock.Unlock()
	argv := append([]string{program}, args...)
	return n.runWith(&Process{Name: "agent", Stdout: base + ".out", Stderr: base + ".err"},
		append([]string{searchPath(), "HOME=/root"}, env...), append(argv, "--root", n.Root))
}

// AgentProgram returns the path of the agent, which the first call builds. If the build fails, it fails each test that
// calls AgentProgram, and no other.
func (n *Node) AgentProgram() string { n.tb.Helper(); return n.buildAgent("image-update-agent") }

// KillableProgram returns the path of the agent that StartKillable starts, which the first call builds.
func (n *Node) KillableProgram() string {
	n.tb.Helper()
	return n.buildAgent("image-update-agent-killpoints", "killpoints")
}
