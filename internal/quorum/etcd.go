// SPDX-License-Identifier: Apache-2.0

package quorum

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/kubic-project/image-update-agent/agent/quorum"
	"github.com/kubic-project/image-update-agent/internal/outside"
)

var (
	errMembers = errors.New("no list of members")
	errMany    = fmt.Errorf("more than %d members", maxParts)
)

// etcd is an etcd as a pod manifest names it.
type etcd struct {
	identity
	urls    []string // where it serves clients
	metrics []string // where it serves its health without a certificate
	name    string   // of this node's member; empty: it is elsewhere
}

// etcdOf returns the etcd of this node, or the one that its API server uses. ok is false where neither names one.
func etcdOf(root string, own, api flags) (e etcd, ok bool, err error) {
	switch {
	case own["listen-client-urls"] != "" || own["advertise-client-urls"] != "":
		e.urls = append(own.list("listen-client-urls"), own.list("advertise-client-urls")...)
		e.metrics, e.name = own.list("listen-metrics-urls"), cmp.Or(own["name"], "default")
		e.identity, err = identityOf(root, own["cert-file"], own["key-file"], own["trusted-ca-file"])
	case api["etcd-servers"] != "":
		e.urls = api.list("etcd-servers")
		e.identity, err = identityOf(root, api["etcd-certfile"], api["etcd-keyfile"], api["etcd-cafile"])
	default:
		return e, false, nil
	}
	return e, true, err
}

// member is a member as etcd lists it.
type member struct {
	Name       string   `json:"name"`
	PeerURLs   []string `json:"peerURLs"`
	ClientURLs []string `json:"clientURLs"`
}

// members asks the first of its addresses that answers.
func (e etcd) members(ctx context.Context) ([]member, error) {
	var errs []error
	for _, at := range e.urls[:min(len(e.urls), maxParts)] {
		var list struct {
			Members []member `json:"members"`
		}
		body, err := e.ask(ctx, join(at, "/v3/cluster/member/list"), []byte("{}"))
		if s, is := errors.AsType[*errStatus](err); is && s.code == http.StatusNotFound { // etcd 3.3
			body, err = e.ask(ctx, join(at, "/v3beta/cluster/member/list"), []byte("{}"))
		}
		if err == nil && (json.Unmarshal(body, &list) != nil || len(list.Members) == 0) {
			err = errMembers
		}
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("%s: %w", hostOf(at), err))
		case len(list.Members) > maxParts:
			return nil, errMany
		default:
			return list.Members, nil
		}
	}
	return nil, fmt.Errorf("%s", strings.ReplaceAll(errors.Join(errs...).Error(), "\n", "; "))
}

// health asks a member whether it is healthy: it has a leader and reads.
func (e etcd) health(ctx context.Context, m member) quorum.Part {
	p := quorum.Part{
		Name: "etcd member " + outside.Line(cmp.Or(m.Name, strings.Join(m.PeerURLs, ",")), 80), Seen: "not started",
		Local: e.name != "" && m.Name == e.name,
	}
	places := m.ClientURLs
	if p.Local {
		places = slices.Concat(e.metrics, e.urls)
	}
	for _, at := range places[:min(len(places), maxParts)] {
		err := e.isHealthy(ctx, at)
		if err == nil {
			p.Healthy, p.Seen = true, ""
			return p
		}
		p.Seen = outside.Text(hostOf(at) + ": " + err.Error())
	}
	return p
}

func (e etcd) isHealthy(ctx context.Context, at string) error {
	body, err := e.ask(ctx, join(at, "/health"), nil)
	if err != nil {
		return err
	}
	var health struct {
		Health string `json:"health"`
		Reason string `json:"reason"`
	}
	if json.Unmarshal(body, &health) != nil || health.Health != "true" {
		return fmt.Errorf("not healthy %s", health.Reason)
	}
	return nil
}

func join(at, path string) string { return strings.TrimSuffix(at, "/") + path }

// hostOf is host[:port] of a URL.
func hostOf(at string) string {
	if u, err := url.Parse(at); err == nil && u.Host != "" {
		return u.Host
	}
	return outside.Line(at, 80)
}
