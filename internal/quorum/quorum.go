// SPDX-License-Identifier: Apache-2.0

// Package quorum asks the members of a control plane whether they are healthy: etcd's members and the API servers. It
// implements apply.Quorum.
//
// Where they are, and with which certificates they are asked, is read from the flags in the node's own pod manifests
// (etcd, kube-apiserver) and, for the API servers of other nodes, from a kubeconfig of kubeadm. Paths in flags are
// taken as the host's, as kubeadm mounts them. All requests only read. Answers are bounded in size and time; no
// redirect is followed, and no program is run for credentials.
package quorum

import (
	"context"
	"fmt"
	"sync"

	"github.com/kubic-project/image-update-agent/agent/follow"
	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/quorum"
	"github.com/kubic-project/image-update-agent/internal/outside"
)

// Control asks the control plane of a node's cluster.
type Control struct {
	Root string // before the paths of certificates and kubeconfigs
}

// Observe asks all members at the same time. files are the pod manifests of the node.
func (c Control) Observe(ctx context.Context, files []node.PodFile) quorum.Observation {
	own, api := flagsOf(files, follow.PodEtcd), flagsOf(files, follow.PodAPIServer)
	var o quorum.Observation
	var both sync.WaitGroup
	both.Go(func() { o.Members, o.Err = c.members(ctx, own, api) })
	both.Go(func() { o.Servers = c.servers(ctx, api) })
	both.Wait()
	o.Err = outside.Error(o.Err)
	return o
}

// members asks each member of etcd; none where no pod manifest names an etcd.
func (c Control) members(ctx context.Context, own, api flags) ([]quorum.Part, error) {
	e, ok, err := etcdOf(c.Root, own, api)
	if err != nil || !ok {
		return nil, err
	}
	list, err := e.members(ctx)
	if err != nil {
		return nil, err
	}
	return all(list, func(m member) quorum.Part { return e.health(ctx, m) }), nil
}

// servers asks the API server of this node, and those of others where a kubeconfig can be read.
func (c Control) servers(ctx context.Context, api flags) []quorum.Part {
	var servers, others []server
	var failed []quorum.Part
	fail := func(name string, err error, local bool) {
		failed = append(failed, quorum.Part{Name: name, Local: local, Seen: outside.Text(err.Error())})
	}
	local, ok, err := localServer(c.Root, api)
	k, known, errKubeconfig := readKubeconfig(c.Root)
	switch {
	case err != nil:
		fail("API server "+local.at, err, true)
	case ok:
		local.pair, local.token = k.pair, k.token // it may refuse others
		servers = append(servers, local)
	}
	if err = errKubeconfig; err == nil && known {
		if others, err = k.others(ctx, local.at); err == nil {
			servers = append(servers, others...)
		} else {
			err = fmt.Errorf("%s: %w", hostOf(k.server), err)
		}
	}
	if err != nil {
		fail("API servers of other nodes", err, false)
	}
	return append(failed, all(servers, func(s server) quorum.Part { return s.ready(ctx) })...)
}

// all makes the calls at the same time.
func all[T any](of []T, ask func(T) quorum.Part) []quorum.Part {
	out := make([]quorum.Part, len(of))
	var group sync.WaitGroup
	for n, one := range of {
		group.Go(func() { out[n] = ask(one) })
	}
	group.Wait()
	return out
}
