// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

const (
	// probeInterval is how often a Prober asks, and so how exactly it measures.
	probeInterval = 10 * time.Millisecond
	// probePatience is how long it waits for one answer. A port without a server refuses at once.
	probePatience = time.Minute
)

// Outage is the time between two answers of a pod, in which it gave none or changed its answer.
type Outage struct {
	Before, After string    // the answers
	Last, First   time.Time // when they were complete
}

// Down is how long it was.
func (o Outage) Down() time.Duration { return o.First.Sub(o.Last) }

// Prober asks a pod for its answer every 10 ms, over a connection of its own each time, as somebody does who comes
// for the first time.
type Prober struct {
	node *Node
	stop func()

	lock    sync.Mutex
	last    Outage // After and First are the last answer; Before and Last are not used
	failed  bool   // since then
	outages []Outage
}

// Probe asks the pod at a port of 127.0.0.1 until Stop, or the end of the test.
func (n *Node) Probe(port int) *Prober {
	n.tb.Helper()
	ctx, cancel := context.WithCancel(n.tb.Context())
	p, ended := &Prober{node: n}, make(chan struct{})
	p.stop = func() { cancel(); <-ended }
	n.tb.Cleanup(p.stop)
	go func() {
		defer close(ended)
		p.ask(ctx, fmt.Sprintf("http://127.0.0.1:%d/", port))
	}()
	return p
}

// Stop ends it. It may be called more than once.
func (p *Prober) Stop() { p.stop() }

func (p *Prober) ask(ctx context.Context, url string) {
	client := &http.Client{Timeout: probePatience, Transport: &http.Transport{DisableKeepAlives: true}}
	tick := time.NewTicker(probeInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		answer, err := answerOf(ctx, client, url)
		p.saw(answer, err, time.Now())
	}
}

func answerOf(ctx context.Context, client *http.Client, url string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return "", err
	}
	response, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", url, response.Status)
	}
	return string(body), err
}

func (p *Prober) saw(answer string, err error, now time.Time) {
	p.lock.Lock()
	defer p.lock.Unlock()
	if err != nil {
		p.failed = true
		return
	}
	if !p.last.First.IsZero() && (p.failed || answer != p.last.After) {
		p.outages = append(p.outages, Outage{Before: p.last.After, After: answer, Last: p.last.First, First: now})
	}
	p.last.After, p.last.First, p.failed = answer, now, false
}

// Forget forgets the outages so far.
func (p *Prober) Forget() {
	p.lock.Lock()
	defer p.lock.Unlock()
	p.outages = nil
}

// Await waits until the pod gives an answer after an outage, and returns the outage. Several since Forget are one,
// from the beginning of the first to the end of the last: a pod that comes up and falls is not back.
func (p *Prober) Await(answer string, patience time.Duration) Outage {
	p.node.tb.Helper()
	var all Outage
	Eventually(p.node.tb, "answer "+answer, patience, func() (err error) {
		all, err = p.since(answer)
		return err
	})
	return all
}

// since is what Await returns, as soon as it is over.
func (p *Prober) since(answer string) (Outage, error) {
	p.lock.Lock()
	defer p.lock.Unlock()
	switch {
	case len(p.outages) == 0:
		return Outage{}, fmt.Errorf("no outage; it answers %q", p.last.After)
	case p.failed:
		return Outage{}, fmt.Errorf("no answer since %s", time.Since(p.last.First))
	case p.last.After != answer:
		return Outage{}, fmt.Errorf("it answers %q", p.last.After)
	}
	all := p.outages[0]
	last := p.outages[len(p.outages)-1]
	all.After, all.First = last.After, last.First
	return all, nil
}
