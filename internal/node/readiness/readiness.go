// SPDX-License-Identifier: Apache-2.0

// Package readiness tells whether the containers of a pod have started, are ready and alive: from kubelet, from what
// kubelet has told the API server, or else by the probes in the pod manifest.
//
// Words:
//
//   - Probe: a startup, readiness or liveness probe, as in package manifests: an HTTP request with a status from 200 to
//     399, a TCP connection, gRPC's health protocol, or a program that CRI runs in the container (ExecSync, which is
//     what kubelet calls).
//   - List: the pods that kubelet runs, with their status, from /pods on its read-only
//     port (10255), or on its own port for authorised clients.
//   - Mirror pod: kubelet's copy of a static pod in the API server, which its own kubeconfig may read. It is an answer
//     only about the containers whose ids it has: it may be older than the pod, and a kubelet that runs alone has none.
//   - Unchecked: a container whose probe could not be run, with the reason. It counts
//     neither as ready nor as unready.
//
// kubelet does not tell whether a liveness probe fails, it ends the container. So this probe also runs beside kubelet,
// unless the container has outlived the time after which kubelet ends it.
//
// Promises: only GET requests and empty connections are sent, never through a proxy, and connections are not kept. The
// size and time of answers are limited. Messages have scheme, host, port and path of a request, but no query, header or
// body, which may be secret.
//
// Probes behave as in k8s.io/kubernetes/pkg/probe, except for the User-Agent.
package readiness

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"sync"
	"time"

	"github.com/kubic-project/image-update-agent/agent/apply"
	"github.com/kubic-project/image-update-agent/manifests"
)

// listTimeout is enough for kubelet, which answers from memory.
const listTimeout = 5 * time.Second

// Options configure a Checker.
type Options struct {
	// Pods is the URL of kubelet's list, for example http://127.0.0.1:10255/pods; empty: none. Its certificate is not
	// verified, because kubelet signs it itself.
	Pods string
	// Kubeconfig is the path of kubelet's kubeconfig, with which the API server is asked for the mirror pod; empty: it is
	// not asked. The absolute paths in it are below Root.
	Kubeconfig, Root string
	// Version is the product's, for the API server.
	Version string
	// Timeout limits the answers of kubelet and of the API server; 0 means 5 s.
	Timeout time.Duration
	// UserAgent is sent to kubelet and containers; empty means the agent's name.
	UserAgent string
	// Addresses returns the host's addresses, for probes and pods without one; nil means those of its interfaces.
	Addresses func(ctx context.Context) []netip.Addr
	// Exec runs a command in a container and returns its exit code; context.DeadlineExceeded after timeout. nil: exec
	// probes cannot run.
	Exec func(ctx context.Context, container string, command []string, timeout time.Duration) (int32, error)
}

// Checker is an apply.Readiness. It is safe for concurrent use.
type Checker struct {
	Options

	list      *url.URL // nil: kubelet has no list
	transport *http.Transport

	mu     sync.Mutex
	mirror mirror
	known  map[string]*memory // what is known of containers, by "pod/container"
}

// memory is what is known of one container.
type memory struct {
	id      string
	started time.Time          // when it was first seen to have started; zero: not yet
	runs    map[string]*result // of its probes, by their type
}

var _ apply.Readiness = (*Checker)(nil)

// New checks the options. It sends no request.
func New(o Options) (*Checker, error) {
	c := &Checker{Options: o, transport: newTransport(), known: map[string]*memory{}}
	c.Timeout, c.UserAgent = cmp.Or(o.Timeout, listTimeout), cmp.Or(o.UserAgent, "image-update-agent")
	if c.Addresses == nil {
		c.Addresses = hostAddresses
	}
	if o.Pods == "" {
		return c, nil
	}
	list, err := url.Parse(o.Pods)
	if err != nil {
		return nil, fmt.Errorf("kubelet's pods: %w", cause(err))
	}
	if list.Scheme != "http" && list.Scheme != "https" || list.Host == "" || list.User != nil {
		return nil, fmt.Errorf("kubelet's pods: %s: want a URL such as http://127.0.0.1:10255/pods", shown(list))
	}
	c.list = list
	return c, nil
}

// Unready asks kubelet, else the API server for what kubelet has told it, and runs the probes that these do not answer.
// Its only error is that of ctx.
func (c *Checker) Unready(ctx context.Context, pod apply.PodReadiness) (apply.Verdict, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	said, complete, why := c.kubeletSays(ctx, pod)
	var v apply.Verdict
	for _, container := range pod.Containers {
		key := pod.Namespace + "/" + pod.Pod + "/" + container.Name
		if c.known[key] == nil || c.known[key].id != container.ID {
			c.known[key] = &memory{id: container.ID, runs: map[string]*result{}}
		}
		j := judge{c, c.known[key], container, pod, nil}
		status, is := said[container.ID]
		switch {
		case v.Unready != "": // it is not asked in vain
		case is:
			j.kubelet = &status
			j.add(ctx, &v, why)
		case complete: // after a start, the list may still have the old container, or none
			v.Unready = container.Name + " is not ready yet: kubelet does not list it"
		default:
			j.add(ctx, &v, why)
		}
	}
	if err := ctx.Err(); err != nil {
		return apply.Verdict{}, fmt.Errorf("readiness of %s: %w", pod.Pod, context.Cause(ctx))
	}
	return v, nil
}

// kubeletSays returns what kubelet says about containers, by id. complete: about all of them. Otherwise the error says
// why some may be missing.
func (c *Checker) kubeletSays(
	ctx context.Context, pod apply.PodReadiness,
) (said map[string]containerStatus, complete bool, why error) {
	if c.list != nil {
		if said, why = c.listed(ctx, pod.Namespace, pod.Pod); why == nil {
			return said, true, nil
		}
	}
	said, err := c.mirrored(ctx, pod.Namespace, pod.Pod)
	return said, false, errors.Join(why, err)
}

// judge judges one container.
type judge struct {
	*Checker
	memory    *memory
	container apply.ContainerReadiness
	pod       apply.PodReadiness
	kubelet   *containerStatus // what kubelet says about it; nil: nothing
}

// add adds what is known about a container to a verdict. why is the reason for which kubelet says nothing, or nil.
func (j judge) add(ctx context.Context, v *apply.Verdict, why error) {
	has := map[string]*manifests.Probe{}
	for n := range j.container.Probes {
		has[j.container.Probes[n].Type] = &j.container.Probes[n]
	}
	unchecked := func(reason string) {
		if why != nil {
			reason += ", and " + why.Error()
		}
		v.Unchecked = append(v.Unchecked, j.container.Name+": "+reason)
	}
	if v.Unready = j.hasStarted(ctx, has[manifests.ProbeStartup], unchecked); v.Unready != "" {
		return
	}
	if j.memory.started.IsZero() {
		j.memory.started = time.Now()
	}
	v.Unready = j.isReady(ctx, has[manifests.ProbeReadiness], v, unchecked)
	if p := has[manifests.ProbeLiveness]; p != nil && v.Unready == "" {
		j.isAlive(ctx, *p, v, unchecked)
	}
}

// hasStarted returns why a container has not started; "" if it has.
func (j judge) hasStarted(ctx context.Context, p *manifests.Probe, unchecked func(string)) string {
	name := j.container.Name
	switch {
	case j.kubelet != nil && j.kubelet.Started != nil && !*j.kubelet.Started:
		return name + " has not started according to kubelet" + j.kubelet.before()
	case j.kubelet != nil || p == nil || !j.memory.started.IsZero():
		return ""
	}
	switch r := j.run(ctx, *p); {
	case r.unknown != "":
		unchecked(r.unknown)
		return ""
	case !r.good:
		return fmt.Sprintf("%s has not started: %s", name, r.why())
	}
	return ""
}

// isReady returns why a container is not ready; "" if it is.
func (j judge) isReady(ctx context.Context, p *manifests.Probe, v *apply.Verdict, unchecked func(string)) string {
	name := j.container.Name
	switch {
	case j.kubelet != nil && !j.kubelet.Ready:
		return name + " is not ready according to kubelet" + j.kubelet.before()
	case j.kubelet != nil || p == nil:
		return ""
	}
	switch r := j.run(ctx, *p); {
	case r.unknown != "":
		unchecked(r.unknown)
	case !r.good:
		return fmt.Sprintf("%s is not ready: %s", name, r.why())
	case r.last != nil:
		v.Failing = cmp.Or(v.Failing, fmt.Sprintf("%s may not be ready: %s", name, r.why()))
	}
	return ""
}

// isAlive notes whether the liveness probe of a container fails. kubelet does not tell, it ends the container: after a
// while, one that kubelet has not ended is alive.
func (j judge) isAlive(ctx context.Context, p manifests.Probe, v *apply.Verdict, unchecked func(string)) {
	name := j.container.Name
	survives := p.Patience() + p.Grace
	if j.kubelet != nil && time.Since(j.memory.started) >= survives {
		return
	}
	switch r := j.run(ctx, p); {
	case r.unknown != "" && j.kubelet == nil:
		unchecked(r.unknown)
	case r.unknown != "":
		v.Failing = cmp.Or(v.Failing, fmt.Sprintf("%s must run for %v: %s", name, survives, r.unknown))
	case !r.good || r.last != nil:
		v.Failing = cmp.Or(v.Failing, fmt.Sprintf("the liveness probe of %s has not succeeded: %s", name, r.why()))
	}
}

// result are the results of a probe, as kubelet counts them (doProbe in
// k8s.io/kubernetes/pkg/kubelet/prober/worker.go).
type result struct {
	at      time.Time // of the last run
	last    error     // of the last run; nil: it succeeded
	waits   string    // why it has not run yet
	unknown string    // why the last run has no result; "" if it has one
	count   int       // results in a row as the last one
	good    bool      // the conclusion
}

func (r *result) why() string {
	if r.last != nil {
		return r.last.Error()
	}
	return r.waits
}

// execPause is the shortest time between two runs of an exec probe that has not succeeded yet: it costs a process.
const execPause = 2 * time.Second

// run runs a probe if it is due. Until it succeeds, it runs more often than kubelet would: then nothing is concluded
// from the number of failures.
func (j judge) run(ctx context.Context, p manifests.Probe) *result {
	r := j.memory.runs[p.Type]
	if r == nil {
		r = &result{}
		j.memory.runs[p.Type] = r
	}
	if r.unknown = unrunnable(p, j.Exec != nil); r.unknown != "" {
		return r
	}
	if age := time.Since(j.container.StartedAt); age < p.Delay && age >= 0 {
		r.waits = fmt.Sprintf("its initialDelaySeconds are not over before %v", p.Delay)
		return r
	}
	pause := time.Duration(0)
	switch {
	case r.good || !r.at.IsZero() && r.last == nil:
		pause = p.Period
	case p.Kind == manifests.ProbeExec:
		pause = min(p.Period, execPause)
	}
	if !r.at.IsZero() && time.Since(r.at) < pause {
		return r
	}
	err := j.probe(ctx, p, j.pod.Address, j.container.ID)
	if unknown, is := errors.AsType[*unknownError](err); is {
		r.unknown = unknown.Error()
		return r
	}
	if (err == nil) == (r.last == nil) && !r.at.IsZero() {
		r.count++
	} else {
		r.count = 1
	}
	r.at, r.last = time.Now(), err
	switch {
	case err == nil && r.count >= p.Successes:
		r.good = true
	case err != nil && r.count >= p.Failures:
		r.good = false
	case err == nil && !r.good:
		r.waits = fmt.Sprintf("its probe has succeeded %d times of %d", r.count, p.Successes)
	}
	return r
}
