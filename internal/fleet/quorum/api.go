// SPDX-License-Identifier: Apache-2.0

package quorum

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/kubic-project/image-update-agent/agent/fleet"
	"github.com/kubic-project/image-update-agent/internal/fleet/kubeconfig"
)

const (
	errServers     = words("no list of API servers")
	errNotAllowed  = words("the user of the kubeconfig may not list them")
	serverName     = "API server "
	nameOfOthers   = "API servers of other nodes"
	endpointsOfAPI = "/api/v1/namespaces/default/endpoints/kubernetes"
)

var errManyServers = words(fmt.Sprintf("more than %d API servers", maxParts))

// server is an API server: at is host:port.
type server struct {
	kubeconfig.Config
	at    string
	local bool
}

// localServer returns an API server of this node. It is verified with the authority of its clients, or with its
// certificate itself.
func (p program) localServer(root string, api flags) (s server, err error) {
	host := cmp.Or(api.Last("advertise-address"), api.Last("bind-address"))
	ip, errIP := netip.ParseAddr(host)
	if host = ip.Unmap().String(); errIP != nil || ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	port := cmp.Or(api.Last("secure-port"), "6443")
	if _, ok := placeOf("https://" + net.JoinHostPort(host, port)); !ok {
		return s, words("cannot read its secure-port")
	}
	authorities, err := p.bundle(root, api.Last("client-ca-file"), api.Last("tls-cert-file"))
	c := kubeconfig.Config{TLS: identity{authorities: authorities}.tls()}
	return serverAt(c, net.JoinHostPort(host, port), true), err
}

func serverAt(c kubeconfig.Config, at string, local bool) server {
	c.Server = "https://" + at
	return server{c, at, local}
}

// ready checks the API servers of this node, and those of other nodes, which a kubeconfig leads to. If this node has an
// API server, unknown others count as not ready.
func (c Control) ready(ctx context.Context, servers []server, hasServer bool) []fleet.Part {
	l, err := newLister(c.Root, c.Kubeconfigs)
	var others []server
	if err == nil {
		l.Dial = c.Dial
		for n := range servers { // the address may refuse others
			servers[n].TLS.Certificates, servers[n].Token = l.TLS.Certificates, l.Token
		}
		others, err = l.others(ctx, c.Version, servers)
	}
	isUnasked := errors.Is(err, errNoKubeconfig) || errors.Is(err, errNotAllowed)
	out := all(slices.Concat(servers, others), func(s server) fleet.Part { return s.ready(ctx, c.Version) })
	if err != nil && (hasServer || !isUnasked) {
		out = append(out, fleet.Part{Name: nameOfOthers, Seen: kindOf(err) + override})
	}
	return out
}

// ready checks whether a server is ready; older ones only report whether they are healthy.
func (s server) ready(ctx context.Context, version string) fleet.Part {
	p := fleet.Part{Name: serverName + s.at, Local: s.local}
	_, err := get(ctx, s.Config, "/readyz", version)
	if e, is := errors.AsType[*kubeconfig.Refusal](err); is && e.Code == http.StatusNotFound { // Kubernetes before 1.16
		_, err = get(ctx, s.Config, "/healthz", version)
	}
	if p.Healthy = err == nil; err != nil {
		p.Seen = kindOf(err)
	}
	return p
}

// get asks an API server.
func get(ctx context.Context, server kubeconfig.Config, path, version string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	return server.Get(ctx, path, version, maxBody)
}

// addresses are the addresses of an endpoint in a cluster's list.
type addresses []struct {
	IP netip.Addr `json:"ip"`
}

// others returns the cluster's API servers except those of this node.
func (l lister) others(ctx context.Context, version string, own []server) ([]server, error) {
	body, err := get(ctx, l.Config, endpointsOfAPI, version)
	e, is := errors.AsType[*kubeconfig.Refusal](err)
	if is && (e.Code == http.StatusUnauthorized || e.Code == http.StatusForbidden) {
		return nil, l.notAllowed()
	}
	if err != nil {
		return nil, words(hostOf(l.Server) + ": " + kindOf(err))
	}
	named, err := addressesOf(body)
	if err != nil {
		return nil, err
	}
	each := l.Config
	each.TLS = l.TLS.Clone()
	each.TLS.ServerName = "" // of the kubeconfig's server
	var out []server
	for _, a := range named {
		if !slices.ContainsFunc(own, func(s server) bool { return s.isAt(a.Addr(), a.String()) }) {
			out = append(out, serverAt(each, a.String(), false))
		}
	}
	return out, nil
}

// addressesOf returns the addresses of a list of endpoints: at least one, and maxParts at most.
func addressesOf(body []byte) (out []netip.AddrPort, err error) {
	var endpoints struct {
		Subsets []struct {
			Addresses addresses `json:"addresses"`
			NotReady  addresses `json:"notReadyAddresses"`
			Ports     []struct {
				Port uint16 `json:"port"`
			} `json:"ports"`
		} `json:"subsets"`
	}
	if err := json.Unmarshal(body, &endpoints); err != nil {
		return nil, errServers
	}
	for _, s := range endpoints.Subsets {
		for _, a := range slices.Concat(s.Addresses, s.NotReady) {
			for _, p := range s.Ports {
				if out = append(out, netip.AddrPortFrom(a.IP, p.Port)); len(out) > maxParts {
					return nil, errManyServers
				}
			}
		}
	}
	isWrong := func(a netip.AddrPort) bool { return !a.IsValid() || a.Port() == 0 }
	if len(out) == 0 || slices.ContainsFunc(out, isWrong) {
		return nil, errServers
	}
	return out, nil
}

// balanced returns an unknown part if the API servers share one address that no interface of this node has, as of a
// load balancer: nobody knows how many there are, or which one answers. A control plane with one member of etcd has one
// API server.
func balanced(members, servers []fleet.Part) []fleet.Part {
	if len(members) < 2 || len(servers) != 1 || !servers[0].Local {
		return nil
	}
	at, _, _ := net.SplitHostPort(strings.TrimPrefix(servers[0].Name, serverName))
	if ip, err := netip.ParseAddr(at); err != nil || isOfNode(ip) {
		return nil
	}
	return []fleet.Part{{
		Name: nameOfOthers, Seen: "the cluster lists only " + at + ", which is not an address of this node" + override,
	}}
}

// isAt reports whether this is the server at an address: its own address, or another one of this node with the same
// port.
func (s server) isAt(ip netip.Addr, at string) bool {
	_, port, _ := net.SplitHostPort(at)
	_, own, _ := net.SplitHostPort(s.at)
	if s.at == at || port != own {
		return s.at == at
	}
	return isOfNode(ip)
}

// isOfNode reports whether an interface of this node has an address.
func isOfNode(ip netip.Addr) bool {
	addresses, err := net.InterfaceAddrs()
	return err == nil && slices.ContainsFunc(addresses, func(a net.Addr) bool {
		prefix, err := netip.ParsePrefix(a.String())
		return err == nil && prefix.Addr().Unmap() == ip.Unmap()
	})
}
