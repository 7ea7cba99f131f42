// SPDX-License-Identifier: Apache-2.0

package keeper

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// ErrGone means that the keeper has ended, and all processes of the node with it.
var ErrGone = errors.New("keeper: gone")

// Keeper is the owner's end. Its methods may be called from any goroutine.
type Keeper struct {
	Dir string // the node's directory, which the keeper removes at the end

	program *exec.Cmd
	in      io.WriteCloser
	read    chan struct{} // closed when no further event can come

	lock    sync.Mutex
	last    int
	replies map[int]chan event
	running map[int]*Process
}

// Process is a program in the node.
type Process struct {
	keeper *Keeper
	id     int
	exit   Exit
	done   chan struct{}
}

// Start makes a node's directory and runs program (cmd/keeper, built) to keep it.
func Start(program string) (*Keeper, error) {
	if err := allowInotify(); err != nil {
		return nil, fmt.Errorf("keeper: %w", err)
	}
	dir, lock, err := newDir()
	if err != nil {
		return nil, fmt.Errorf("keeper: directory: %w", err)
	}
	defer func() { _ = lock.Close() }() // the keeper inherits its own copy
	k := &Keeper{Dir: dir, read: make(chan struct{}), replies: map[int]chan event{}, running: map[int]*Process{}}
	up := make(chan event, 1)
	k.replies[0] = up
	if err := k.launch(program, lock); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	if _, open := <-up; !open {
		return nil, fmt.Errorf("keeper: start: %w", k.program.Wait())
	}
	return k, nil
}

// allowInotify raises the number of inotify instances that all programs of root may have. The kernel's default of 128
// is enough for some fifteen nodes with a booted system: the next one's systemd starts "degraded". The machine keeps
// the limit until it is booted again.
func allowInotify() error {
	const file, enough = "/proc/sys/fs/inotify/max_user_instances", 8192
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if limit, err := strconv.Atoi(strings.TrimSpace(string(text))); err != nil || limit >= enough {
		return err
	}
	return os.WriteFile(file, []byte(strconv.Itoa(enough)), 0)
}

// launch starts the keeper in its own session, so that an interrupt from the terminal reaches only the owner.
func (k *Keeper) launch(program string, lock *os.File) error {
	k.program = exec.CommandContext(context.Background(), program, "keep", k.Dir) // Close ends it, not a context
	k.program.Stderr = os.Stderr
	k.program.ExtraFiles = []*os.File{lock}
	k.program.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	in, err := k.program.StdinPipe()
	if err != nil {
		return err
	}
	out, err := k.program.StdoutPipe()
	if err != nil {
		return err
	}
	k.in = in
	if err := k.program.Start(); err != nil {
		return fmt.Errorf("keeper: %w", err)
	}
	go k.receive(out)
	return nil
}

// Close ends the node and returns when nothing is left of it.
func (k *Keeper) Close() error {
	if err := k.in.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		return fmt.Errorf("keeper: %w", err)
	}
	<-k.read
	if err := k.program.Wait(); err != nil {
		return fmt.Errorf("keeper: %w", err)
	}
	return nil
}

// Pid returns the keeper's process id.
func (k *Keeper) Pid() int { return k.program.Process.Pid }

// Run starts a command in the node.
func (k *Keeper) Run(c Command) (*Process, error) {
	if len(c.Argv) == 0 || !filepath.IsAbs(c.Argv[0]) {
		return nil, fmt.Errorf("keeper: run: %q: not an absolute path", c.Argv)
	}
	p := &Process{keeper: k, done: make(chan struct{})}
	err := k.call(func(id int) request {
		p.id = id
		k.running[id] = p
		return request{Command: &c}
	})
	if err != nil {
		k.lock.Lock()
		delete(k.running, p.id)
		k.lock.Unlock()
		return nil, err
	}
	return p, nil
}

// Signal sends s to the process. If the process has ended, the error has the text of syscall.ESRCH.
func (p *Process) Signal(s syscall.Signal) error {
	return p.keeper.call(func(int) request { return request{Target: p.id, Signal: int(s)} })
}

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Wait waits for the end of the process.
func (p *Process) Wait() Exit {
	<-p.done
	return p.exit
}

// call sends the request that prepare returns (it is called under the lock, with the request's id) and waits for its
// reply.
func (k *Keeper) call(prepare func(id int) request) error {
	reply := make(chan event, 1)
	if err := k.send(prepare, reply); err != nil {
		return err
	}
	e, open := <-reply
	if !open {
		return ErrGone
	}
	if e.Error != "" {
		return fmt.Errorf("keeper: %s", e.Error)
	}
	return nil
}

func (k *Keeper) send(prepare func(id int) request, reply chan event) error {
	k.lock.Lock()
	defer k.lock.Unlock()
	if k.replies == nil {
		return ErrGone
	}
	k.last++
	r := prepare(k.last)
	r.ID = k.last
	k.replies[r.ID] = reply
	if err := json.NewEncoder(k.in).Encode(r); err != nil {
		delete(k.replies, r.ID)
		return errors.Join(ErrGone, err)
	}
	return nil
}

// receive passes events on until the keeper ends; then it ends all waits.
func (k *Keeper) receive(out io.Reader) {
	defer close(k.read)
	for decoder := json.NewDecoder(out); ; {
		var e event
		if err := decoder.Decode(&e); err != nil {
			break
		}
		k.deliver(e)
	}
	k.lock.Lock()
	defer k.lock.Unlock()
	for _, reply := range k.replies {
		close(reply)
	}
	k.replies = nil
	for _, p := range k.running {
		p.exit = Exit{Code: -1, Missing: true}
		close(p.done)
	}
	k.running = nil
}

func (k *Keeper) deliver(e event) {
	k.lock.Lock()
	defer k.lock.Unlock()
	if e.Exit == nil {
		k.replies[e.ID] <- e
		delete(k.replies, e.ID)
	} else if p := k.running[e.ID]; p != nil {
		p.exit = *e.Exit
		close(p.done)
		delete(k.running, e.ID)
	}
}
