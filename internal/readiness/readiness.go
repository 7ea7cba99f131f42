// SPDX-License-Identifier: Apache-2.0

package readiness

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"time"

	"github.com/kubic-project/image-update-agent/agent/apply"
	"github.com/kubic-project/image-update-agent/manifests"
)

// listTimeout is enough for kubelet, which answers from memory.
const listTimeout = 5 * time.Second

// Options configure a Checker.
type Options struct {
	// Pods is the URL of kubelet's list, for example http://127.0.0.1:10255/pods; empty: only probes. Its certificate
	// is not verified, because kubelet signs it itself.
	Pods string
	// Timeout limits kubelet's answer; 0 means 5 s.
	Timeout time.Duration
	// UserAgent is sent to kubelet and containers; empty means the agent's name.
	UserAgent string
	// Addresses returns the host's addresses, for probes and pods without one; nil means
	// loopback, and those of the host's interfaces.
	Addresses func(ctx context.Context) []netip.Addr
}

// Checker is an apply.Readiness. It is safe for concurrent use.
type Checker struct {
	list      *url.URL // nil: only probes
	timeout   time.Duration
	userAgent string
	addresses func(ctx context.Context) []netip.Addr
	transport *http.Transport
}

var _ apply.Readiness = (*Checker)(nil)

// New checks the options. It sends no request.
func New(o Options) (*Checker, error) {
	c := &Checker{
		timeout:   cmp.Or(o.Timeout, listTimeout),
		userAgent: cmp.Or(o.UserAgent, "image-update-agent"),
		addresses: o.Addresses,
		transport: newTransport(),
	}
	if c.addresses == nil {
		c.addresses = hostAddresses
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

// Unready asks kubelet, and if it does not answer, runs the probes. Its only error is that of ctx.
func (c *Checker) Unready(ctx context.Context, pod apply.PodReadiness) (apply.Verdict, error) {
	var listErr error
	if c.list != nil {
		var seen map[string]bool
		if seen, listErr = c.listed(ctx, pod.Namespace, pod.Pod); listErr == nil {
			return fromKubelet(pod, seen), nil
		}
	}
	verdict := c.byProbes(ctx, pod, listErr)
	if err := ctx.Err(); err != nil {
		return apply.Verdict{}, fmt.Errorf("readiness of %s: %w", pod.Pod, context.Cause(ctx))
	}
	return verdict, nil
}

// fromKubelet compares container IDs: after a start, the list may still have the old container, or none.
func fromKubelet(pod apply.PodReadiness, seen map[string]bool) apply.Verdict {
	for _, container := range pod.Containers {
		ready, known := seen[container.ID]
		switch {
		case !known:
			return apply.Verdict{Unready: container.Name + " is not ready yet: kubelet does not list it"}
		case !ready:
			return apply.Verdict{Unready: container.Name + " is not ready according to kubelet"}
		}
	}
	return apply.Verdict{}
}

// byProbes runs the probes in order until one fails. listErr is that of kubelet's list, or
// nil.
func (c *Checker) byProbes(ctx context.Context, pod apply.PodReadiness, listErr error) apply.Verdict {
	var v apply.Verdict
	var runnable []manifests.Probe
	for _, container := range pod.Containers {
		if container.Probe == nil {
			continue
		}
		p := *container.Probe
		p.Container = container.Name
		if reason := unrunnable(p); reason != "" {
			if listErr != nil {
				reason += ", and " + listErr.Error()
			}
			v.Unchecked = append(v.Unchecked, container.Name+": "+reason)
			continue
		}
		runnable = append(runnable, p)
	}
	for _, p := range runnable {
		if err := c.probe(ctx, p, pod.Address); err != nil {
			v.Unready = fmt.Sprintf("%s is not ready: %v", p.Container, err)
			break
		}
	}
	return v
}
