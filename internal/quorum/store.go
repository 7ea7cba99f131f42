// SPDX-License-Identifier: Apache-2.0

package quorum

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/kubic-project/image-update-agent/agent/node"
)

const (
	errNoStore = words("no pod manifest of this node runs kube-apiserver or etcd")
	errStores  = words("the pod manifests of this node name several etcds")
)

// Etcd returns a function that asks the etcd with the cluster's objects: that of this node's API server, or the only
// one of a node without an API server. It tries the URLs in the order of the pod manifest until a question succeeds, so
// that a question may be asked again although it was answered. files are the pod manifests of the node.
func (c Control) Etcd(files []node.PodFile) (
	ask func(ctx context.Context, question func(context.Context, *clientv3.Client) error) error, err error,
) {
	e, err := c.store(find(files))
	if e.dial = c.Dial; e.dial == nil {
		e.dial = (&net.Dialer{}).DialContext
	}
	return e.askAny, err
}

// store returns the etcd with the cluster's objects. An unreadable pod manifest may be that of an API server.
func (c Control) store(p programs) (etcd, error) {
	all, read := p.servers, program.serversEtcd
	if len(all) == 0 {
		if len(p.errs) > 0 {
			return etcd{}, words(strings.ReplaceAll(errors.Join(p.errs...).Error(), "\n", "; "))
		}
		all, read = p.etcds, program.ownEtcd
	}
	if len(all) == 0 {
		return etcd{}, errNoStore
	}
	var first etcd
	for n, program := range all {
		e, err := read(program, c.Root)
		switch {
		case err != nil:
			return etcd{}, &misread{program.file, err}
		case n == 0:
			first = e
		case !slices.Equal(e.urls, first.urls):
			return etcd{}, errStores
		}
	}
	return first, nil
}

// serversEtcd returns the etcd that an API server of this node uses.
func (p program) serversEtcd(root string) (etcd, error) {
	api, err := p.apiFlags()
	if err != nil {
		return etcd{}, err
	}
	return p.usedEtcd(root, api)
}

// askAny asks one URL after another.
func (e etcd) askAny(ctx context.Context, question func(context.Context, *clientv3.Client) error) error {
	var failed []string
	for _, at := range e.urls {
		err := e.ask(ctx, at, question)
		if err == nil {
			return nil
		}
		if failed = append(failed, hostOf(at)+": "+kindOf(err)); ctx.Err() != nil {
			break
		}
	}
	return words(strings.Join(failed, "; "))
}
