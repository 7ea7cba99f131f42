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

// Kubelet answers from memory; one that does not is busy or stuck.
const listTimeout = 5 * time.Second

// Options say whom to ask.
type Options struct {
	// Pods is the URL of kubelet's list, as http://127.0.0.1:10255/pods; empty:
	// kubelet is not asked. Its certificate is not verified: kubelet signs it itself.
	Pods string
	// Timeout is for kubelet's answer; 0: 5 s.
	Timeout time.Duration
	// UserAgent is what is sent to kubelet and to containers; empty: the agent's
	// name.
	UserAgent string
	// Addresses are those of the host that a probe tries in turn where neither it
	// nor the pod has one; nil: loopback, and those of the host's interfaces.
	Addresses func(ctx context.Context) []netip.Addr
}

// Checker is an apply.Readiness. It holds no state between two questions, and
// may be used by several goroutines.
type Checker struct {
	list      *url.URL // nil: kubelet is not asked
	timeout   time.Duration
	userAgent string
	addresses func(ctx context.Context) []netip.Addr
	transport *http.Transport
}

var _ apply.Readiness = (*Checker)(nil)

// New checks the options. It asks nobody yet.
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
		return nil, fmt.Errorf("kubelet's pods: %s: no URL as http://127.0.0.1:10255/pods", shown(list))
	}
	c.list = list
	return c, nil
}

// Unready asks kubelet, and where it does not answer the containers themselves.
// Its error is that of ctx: otherwise somebody can be asked, or what nobody can
// tell is Unchecked.
func (c *Checker) Unready(ctx context.Context, pod apply.PodReadiness) (apply.Verdict, error) {
	var noList error
	if c.list != nil {
		var seen map[string]bool
		if seen, noList = c.listed(ctx, pod.Namespace, pod.Pod); noList == nil {
			return fromKubelet(pod, seen), nil
		}
	}
	verdict := c.byProbes(ctx, pod, noList)
	if err := ctx.Err(); err != nil {
		return apply.Verdict{}, fmt.Errorf("readiness of %s: %w", pod.Pod, context.Cause(ctx))
	}
	return verdict, nil
}

// fromKubelet compares by container ID: right after a start the list still has
// the container before, or none.
func fromKubelet(pod apply.PodReadiness, seen map[string]bool) apply.Verdict {
	for _, container := range pod.Containers {
		ready, known := seen[container.ID]
		switch {
		case !known:
			return apply.Verdict{Unready: container.Name + " is not ready yet: kubelet has not seen it"}
		case !ready:
			return apply.Verdict{Unready: container.Name + " is not ready, says kubelet"}
		}
	}
	return apply.Verdict{}
}

// byProbes runs the probes in order up to the first that fails. noList says why
// kubelet was not to be had, nil: it was not to be asked.
func (c *Checker) byProbes(ctx context.Context, pod apply.PodReadiness, noList error) apply.Verdict {
	var v apply.Verdict
	var runnable []manifests.Probe
	for _, container := range pod.Containers {
		if container.Probe == nil {
			continue
		}
		p := *container.Probe
		p.Container = container.Name
		if reason := unrunnable(p); reason != "" {
			if noList != nil {
				reason += ", and " + noList.Error()
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
