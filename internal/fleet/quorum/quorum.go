// SPDX-License-Identifier: Apache-2.0

// Package quorum checks whether the members of a control plane are healthy: etcd's members and the API servers. It
// implements apply.Quorum.
//
// A member has a vote; learners do not count. The local member is the one whose id answers at the address of this
// node's etcd, or whose URLs are those configured for this node's etcd: a name is not enough.
//
// Addresses and certificates are read from the pod manifests of this node: from each container that runs etcd or
// kube-apiserver, by flags, variables or a configuration file; paths are mapped through the mounts of
// the pod. The cluster lists the API servers of other nodes; it is queried with a kubeconfig of the node. Requests to
// etcd use etcd's client, requests to API servers HTTPS. All requests are read-only. A URL from others is called only
// if it consists of scheme, host and port.
//
// An unknown or unclear state, or a missing answer, never counts as healthy. Text from servers is not passed on:
// results are described in fixed texts. The calls run concurrently and end together: size, number and time of answers
// are limited, no connection stays open, no redirect is followed, no program is run for credentials.
//
// Why the lock is not enough: it does not see a member that is already down, and the update of a second one ends the
// quorum. Why etcd's own client: etcd's JSON gateway does not listen at the client URLs if listen-client-http-urls is
// set.
package quorum

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kubic-project/image-update-agent/agent/fleet"
	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
	"github.com/kubic-project/image-update-agent/internal/fleet/kubeconfig"
	"github.com/kubic-project/image-update-agent/manifests"
)

// override is the end of every reason for an unknown state.
const override = "; apply.quorum: off skips this check"

// Control checks the control plane of a node's cluster.
type Control struct {
	Root string // prefix of the paths of certificates and kubeconfigs
	// Kubeconfigs lead to the other API servers; the first usable one counts.
	Kubeconfigs []string
	Version     string // of the product, for the User-Agent
	// Dial opens the connections; nil: over the network.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Observe checks all members concurrently. files are the pod manifests of the node.
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
	both.Go(func() { o.Servers = c.ready(ctx, servers, len(p.by[manifests.RoleAPIServer]) > 0) })
	both.Wait()
	o.Servers = append(o.Servers, balanced(o.Members, o.Servers)...)
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
	for _, program := range p.by[manifests.RoleEtcd] {
		e, err := program.ownEtcd(c.Root)
		if err != nil {
			errs = append(errs, &misread{program.file, err})
			continue
		}
		e.dial = c.Dial
		etcds = append(etcds, e)
	}
	for _, program := range p.by[manifests.RoleAPIServer] {
		api, err := program.apiFlags()
		if err != nil {
			errs = append(errs, &misread{program.file, err})
			continue
		}
		if local, err := program.localServer(c.Root, api); err == nil {
			local.Dial = c.Dial
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

// members checks each member of the etcds. Unknown ones are errors.
func members(ctx context.Context, etcds []etcd) ([]fleet.Part, []error) {
	clusters, failed := join(etcds, all(etcds, func(e etcd) (c cluster) {
		c, c.err = e.clusterOf(ctx)
		return c
	}))
	return slices.Concat(all(clusters, func(c cluster) []fleet.Part { return c.health(ctx) })...), failed
}

// all calls ask concurrently for each element. The length of the list is limited by its source.
func all[T, R any](of []T, ask func(T) R) []R {
	out := make([]R, len(of))
	var group sync.WaitGroup
	for n, one := range of {
		group.Go(func() { out[n] = ask(one) })
	}
	group.Wait()
	return out
}

// words is an error with a fixed text.
type words string

func (w words) Error() string { return string(w) }

// kindOf returns why a call failed, as a fixed text: texts of servers are never passed on.
func kindOf(err error) string {
	if own, is := errors.AsType[words](err); is {
		return string(own)
	}
	if answer, is := errors.AsType[*kubeconfig.Refusal](err); is {
		return fmt.Sprintf("%d %s", answer.Code, http.StatusText(answer.Code))
	}
	if said := kindOfTLS(err); said != "" {
		return said
	}
	errno, isErrno := errors.AsType[syscall.Errno](err)
	_, isDNS := errors.AsType[*net.DNSError](err)
	coded, isCoded := errors.AsType[interface {
		error
		Code() codes.Code
	}](err)
	code := status.Code(err)
	if isCoded {
		code = coded.Code()
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded) || code == codes.DeadlineExceeded:
		return "no answer in time"
	case errors.Is(err, fs.ErrNotExist):
		return "no such file"
	case isErrno:
		return errno.Error()
	case isDNS:
		return "its name does not resolve"
	case code != codes.Unknown && code != codes.OK:
		return "gRPC code " + code.String()
	}
	return "cannot read its answer"
}

// kindOfTLS returns why a TLS connection failed; empty for other errors.
func kindOfTLS(err error) string {
	_, isAuthority := errors.AsType[x509.UnknownAuthorityError](err)
	_, isName := errors.AsType[x509.HostnameError](err)
	_, isCertificate := errors.AsType[*tls.CertificateVerificationError](err)
	_, isRecord := errors.AsType[tls.RecordHeaderError](err)
	remote, is := errors.AsType[*net.OpError](err)
	switch {
	case isAuthority:
		return "its certificate is signed by an unknown authority"
	case isName:
		return "its certificate is for another name"
	case isCertificate:
		return "its certificate is not valid"
	case isRecord:
		return "it does not speak TLS"
	case is && remote.Op == "remote error": // a TLS alert, which has one code per text
		return remote.Err.Error()
	}
	return ""
}
