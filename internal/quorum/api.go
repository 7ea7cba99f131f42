// SPDX-License-Identifier: Apache-2.0

package quorum

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"strconv"

	"github.com/kubic-project/image-update-agent/agent/quorum"
	"github.com/kubic-project/image-update-agent/internal/outside"
)

// server is an API server: at is host:port.
type server struct {
	identity
	at    string
	local bool
}

// localServer returns the API server of this node; ok is false where its pod manifest does not say where it serves. Its
// authority is that of its clients, or its certificate itself.
func localServer(root string, api flags) (s server, ok bool, err error) {
	if api["tls-cert-file"] == "" {
		return s, false, nil
	}
	host := cmp.Or(api["advertise-address"], api["bind-address"])
	if ip, errIP := netip.ParseAddr(host); errIP != nil || ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	s = server{at: net.JoinHostPort(host, cmp.Or(api["secure-port"], "6443")), local: true}
	s.identity, err = identityOf(root, "", "", api["client-ca-file"], api["tls-cert-file"])
	return s, true, err
}

// ready asks whether a server is ready; older ones know only whether they are healthy.
func (s server) ready(ctx context.Context) quorum.Part {
	p := quorum.Part{Name: "API server " + s.at, Local: s.local}
	_, err := s.ask(ctx, "https://"+s.at+"/readyz", nil)
	if e, is := errors.AsType[*errStatus](err); is && e.code == http.StatusNotFound { // Kubernetes before 1.16
		_, err = s.ask(ctx, "https://"+s.at+"/healthz", nil)
	}
	if p.Healthy = err == nil; err != nil {
		p.Seen = outside.Text(err.Error())
	}
	return p
}

// others returns the API servers that a cluster names, but this node's. A cluster that does not let this node ask names
// none.
func (k kubeconfig) others(ctx context.Context, local string) ([]server, error) {
	body, err := k.ask(ctx, join(k.server, "/api/v1/namespaces/default/endpoints/kubernetes"), nil)
	e, is := errors.AsType[*errStatus](err)
	if is && (e.code == http.StatusUnauthorized || e.code == http.StatusForbidden) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var endpoints struct {
		Subsets []struct {
			Addresses []struct {
				IP netip.Addr `json:"ip"`
			} `json:"addresses"`
			Ports []struct {
				Port uint16 `json:"port"`
			} `json:"ports"`
		} `json:"subsets"`
	}
	if err := json.Unmarshal(body, &endpoints); err != nil {
		return nil, errors.New("no list of API servers")
	}
	var out []server
	for _, s := range endpoints.Subsets {
		for _, a := range s.Addresses {
			for _, p := range s.Ports {
				at := net.JoinHostPort(a.IP.String(), strconv.Itoa(int(p.Port)))
				if at != local && len(out) < maxParts {
					out = append(out, server{identity: k.identity, at: at})
				}
			}
		}
	}
	return out, nil
}
