// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"sync"
	"time"

	"github.com/opencontainers/go-digest"
)

// stillHere is how often what was told last is told again while somebody else is
// waited for: well within the service manager's patience.
const stillHere = 10 * time.Second

// tell passes progress on to whoever listens, of one pull at a time.
func (a *Agent) tell(p Progress) {
	if a.Progress != nil {
		a.telling.Lock()
		defer a.telling.Unlock()
		a.told = p
		a.Progress(p)
	}
}

// attend tells again what was told last, until its end is called: the loop waits for
// another program, and lives. It is for calls that end by themselves: a request after
// a minute, a tag list after five, a pull in kubelet's name after 15, a staging after
// an hour. What waits for nobody, as for a disk, is not attended, so that the service
// manager ends a daemon that hangs.
func (a *Agent) attend() (end func()) {
	if a.Progress == nil {
		return func() {}
	}
	done := make(chan struct{})
	var telling sync.WaitGroup
	telling.Go(func() {
		tick := time.NewTicker(stillHere)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				a.telling.Lock()
				a.Progress(a.told)
				a.telling.Unlock()
			}
		}
	})
	return func() { close(done); telling.Wait() }
}

// forgetTold begins a cycle: nobody is told again of the one before.
func (a *Agent) forgetTold() {
	a.telling.Lock()
	defer a.telling.Unlock()
	a.told = Progress{}
}

// during is attended work on a pod. Mostly it is short, and nobody has to be told.
func (a *Agent) during(pod string, work func() error) error {
	a.telling.Lock()
	a.told = Progress{Reference: pod, Phase: phaseWaiting}
	a.telling.Unlock()
	defer a.attend()()
	return work()
}

func (a *Agent) resolve(ctx context.Context, ref Reference) (Resolved, error) {
	defer a.attend()()
	return a.Source.Resolve(ctx, ref)
}

func (a *Agent) describe(ctx context.Context, repository string, d digest.Digest) (Build, error) {
	defer a.attend()()
	return a.Source.Describe(ctx, repository, d)
}
