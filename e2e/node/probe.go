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
	// probeInterval is the interval of a Prober, and so its resolution.
	probeInterval = 10 * time.Millisecond
	// probePatience is the timeout of one request. A port without a server refuses at once.
	probePatience = time.Minute
)

// Outage is the time between two answers of a pod in which it did not answer or changed its answer.
type Outage struct {
	Before, After string    // the answers
	Last, First   time.Time // when each answer was complete
}

// Down returns the duration of the outage.
func (o Outage) Down() time.Duration { return o.First.Sub(o.Last) }

// Prober asks a pod for its answer every 10 ms, each time on a new connection, like a new client.
type Prober struct {
	node *Node
	stop func()

	lock    sync.Mutex
	last    Outage // the last answer in After and First; Before and Last are unused
	failed  bool   // since the last answer
	outages []Outage
}

// Probe asks the pod on a port of 127.0.0.1 until Stop, or the end of the test.
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

// Stop ends the prober. It may be called more than once.
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

// Forget clears the recorded outages.
func (p *Prober) Forget() {
	p.lock.Lock()
	defer p.lock.Unlock()
	p.outages = nil
}

// Await waits until the pod gives an answer after an outage, and returns the outage. Several outages since Forget count
// as one, from the start of the first to the end of the last: a pod that starts and fails again is not back.
func (p *Prober) Await(answer string, patience time.Duration) Outage {
	p.node.tb.Helper()
	var all Outage
	Eventually(p.node.tb, "answer "+answer, patience, func() (err error) {
		all, err = p.since(answer)
		return err
	})
	return all
}

// since returns the result of Await once the outage is over.
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
