// SPDX-License-Identifier: Apache-2.0

// Package quorum asks the members of a control plane whether they are healthy: etcd's members and the API servers. It
// implements apply.Quorum.
//
// A member is one with a vote; learners are none. The own member is the one whose id answers where this node's etcd
// listens, or whose URLs are those that this node's etcd has been told to have: a name is no proof.
//
// Where they are, and with which certificates they are asked, is read from the pod manifests of this node: each
// container that runs etcd or kube-apiserver, by flags, variables, a configuration file or the script of a shell; paths
// are mapped through the mounts of the pod. The API servers of other nodes are named by the cluster, which is asked
// with a kubeconfig of the node. etcd is asked by its own client, API servers by HTTPS. All requests only read. A URL
// that others name is asked only if it has scheme, host and port and nothing else.
//
// What is not understood, not known, or not answered is never taken for healthy. Nothing that a server writes is passed
// on: what was seen is said in our own words. The questions are asked at the same time, and end together: answers and
// their number are bounded in size and time, no connection stays open, no redirect is followed, no program is run for
// credentials.
package quorum

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"

	"github.com/kubic-project/image-update-agent/agent/fleet"
	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/internal/outside"
)

// override is what every reason for not knowing ends with.
const override = "; apply.quorum: off overrides"

// Control asks the control plane of a node's cluster.
type Control struct {
	Root string // before the paths of certificates and kubeconfigs
	// Kubeconfigs lead to the other API servers; the first that can be used is used.
	Kubeconfigs []string
	// Dial opens the connections; nil: by the network.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Observe asks all members at the same time. files are the pod manifests of the node.
func (c Control) Observe(ctx context.Context, files []node.PodFile) fleet.Observation {
	ctx, cancel := context.WithTimeout(ctx, observeTimeout)
	defer cancel()
	if c.Dial == nil {
		c.Dial = (&net.Dialer{}).DialContext
	}
	p := find(files)
	etcds, servers, errs := c.read(p)
	var o fleet.Observation
	var both sync.WaitGroup
	both.Go(func() {
		var failed []error
		o.Members, failed = members(ctx, etcds)
		errs = append(errs, failed...)
	})
	both.Go(func() { o.Servers = c.ready(ctx, servers, len(p.servers) > 0) })
	both.Wait()
	if len(etcds) == 0 && len(errs) == 0 {
		errs = []error{errNoEtcd}
	}
	if err := errors.Join(errs...); err != nil {
		text := outside.Text(strings.ReplaceAll(err.Error(), "\n", "; "))
		o.Err = words(text + override)
	}
	return o
}

// read returns the etcds and the API servers of this node.
func (c Control) read(p programs) (etcds []etcd, servers []server, errs []error) {
	errs = slices.Clone(p.errs)
	for _, program := range p.etcds {
		e, err := program.ownEtcd(c.Root)
		if err != nil {
			errs = append(errs, &misread{program.file, err})
			continue
		}
		e.dial = c.Dial
		etcds = append(etcds, e)
	}
	for _, program := range p.servers {
		api, err := program.apiFlags()
		if err != nil {
			errs = append(errs, &misread{program.file, err})
			continue
		}
		if local, err := program.localServer(c.Root, api); err == nil {
			local.dial = c.Dial
			servers = append(servers, local)
		} else {
			errs = append(errs, &misread{program.file, err})
		}
		used, err := program.usedEtcd(c.Root, api)
		if err != nil {
			errs = append(errs, &misread{program.file, err})
			continue
		}
		for n := range etcds {
			etcds[n].serve(used.identity)
		}
		used.dial = c.Dial
		etcds = append(etcds, used)
	}
	return etcds, servers, errs
}

// members asks each member of the etcds. Those that are not known are errors.
func members(ctx context.Context, etcds []etcd) ([]fleet.Part, []error) {
	found, errs := make([]cluster, len(etcds)), make([]error, len(etcds))
	var group sync.WaitGroup
	for n, e := range etcds {
		group.Go(func() { found[n], errs[n] = e.clusterOf(ctx) })
	}
	group.Wait()
	clusters, failed := join(etcds, found, errs)
	return slices.Concat(all(clusters, func(c cluster) []fleet.Part { return c.health(ctx) })...), failed
}

// all makes the calls at the same time. Their number is bounded by what they are made for.
func all[T, R any](of []T, ask func(T) R) []R {
	out := make([]R, len(of))
	var group sync.WaitGroup
	for n, one := range of {
		group.Go(func() { out[n] = ask(one) })
	}
	group.Wait()
	return out
}
