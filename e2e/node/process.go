// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/kubic-project/image-update-agent/e2e/keeper"
)

const tailLines = 30 // lines of each log that a failed test shows

// Process is a program of the node.
type Process struct {
	Name   string
	Stdout string // path of the file
	Stderr string // path of the file; equal to Stdout unless the outputs are separate

	node    *Node
	process *keeper.Process
}

// run starts a program whose output is appended to Dir/log/NAME.log; later starts of the same name use the same file.
func (n *Node) run(name string, env []string, argv ...string) *Process {
	n.tb.Helper()
	log := filepath.Join(n.Dir, "log", name+".log")
	return n.runWith(&Process{Name: name, Stdout: log, Stderr: log}, env, argv)
}

func (n *Node) runWith(p *Process, env, argv []string) *Process {
	n.tb.Helper()
	if err := os.MkdirAll(filepath.Dir(p.Stdout), 0o755); err != nil {
		n.tb.Fatalf("node: %v", err)
	}
	process, err := n.keeper.Run(keeper.Command{Argv: argv, Env: env, Stdout: p.Stdout, Stderr: p.Stderr})
	if err != nil {
		n.tb.Fatalf("node: %s: %v", p.Name, err)
	}
	p.node, p.process = n, process
	n.lock.Lock()
	defer n.lock.Unlock()
	n.processes = append(n.processes, p)
	return p
}

// Signal sends a signal to the process.
func (p *Process) Signal(s syscall.Signal) {
	p.node.tb.Helper()
	if err := p.process.Signal(s); err != nil {
		p.node.tb.Fatalf("node: %s: %v", p.Name, err)
	}
}

// Stop sends SIGTERM and waits for the end of the process, which may have ended by itself: its Exit says how.
func (p *Process) Stop() keeper.Exit { p.node.tb.Helper(); return p.end(syscall.SIGTERM) }

// Kill sends SIGKILL and waits for the end of the process.
func (p *Process) Kill() keeper.Exit { p.node.tb.Helper(); return p.end(syscall.SIGKILL) }

func (p *Process) end(s syscall.Signal) keeper.Exit {
	p.node.tb.Helper()
	if err := p.process.Signal(s); err != nil && !strings.Contains(err.Error(), syscall.ESRCH.Error()) {
		p.node.tb.Fatalf("node: %s: %v", p.Name, err)
	}
	return p.Wait(Patience)
}

// Wait waits for the end of the process, and fails the test if it does not end in time.
func (p *Process) Wait(patience time.Duration) keeper.Exit {
	p.node.tb.Helper()
	select {
	case <-p.process.Done():
		return p.process.Wait()
	case <-time.After(patience):
		p.node.tb.Fatalf("node: %s: still running after %s", p.Name, patience)
		return keeper.Exit{}
	}
}

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.process.Done() }

// alive returns an error once the process has ended, so that a caller does not wait for its response.
func (p *Process) alive() error {
	select {
	case <-p.process.Done():
		return fmt.Errorf("%s: ended: %+v", p.Name, p.process.Wait())
	default:
		return nil
	}
}

// waitReady waits until check succeeds, and fails the test at once if the process ends.
func (p *Process) waitReady(check func() error) {
	p.node.tb.Helper()
	Eventually(p.node.tb, p.Name+": ready", Patience, func() error {
		if err := p.alive(); err != nil {
			p.node.tb.Fatalf("node: %v", err)
		}
		return check()
	})
}

// text reads an output file.
func (n *Node) text(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		n.tb.Logf("node: %v", err)
	}
	return string(text)
}

// logTails logs the end of every log file.
func (n *Node) logTails() {
	n.tb.Helper()
	n.lock.Lock()
	defer n.lock.Unlock()
	seen := map[string]bool{}
	for _, p := range n.processes {
		for _, path := range []string{p.Stdout, p.Stderr} {
			if seen[path] {
				continue
			}
			seen[path] = true
			lines := strings.Split(strings.TrimSpace(n.text(path)), "\n")
			n.tb.Logf("%s:\n%s", path, strings.Join(lines[max(0, len(lines)-tailLines):], "\n"))
		}
	}
}
