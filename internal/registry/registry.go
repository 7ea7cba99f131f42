// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"github.com/containerd/containerd/v2/core/remotes/docker"
	"github.com/containerd/platforms"
	"github.com/distribution/reference"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/internal/registry/hosts"
)

// Options say where hosts are configured and how they are spoken to. The zero
// value asks each namespace itself, over https.
type Options struct {
	// CertsDirs are containerd's registry directories (its config_path, split at
	// the colons). The first that knows a namespace, or has _default, wins.
	CertsDirs []string
	// Version of the product, for the User-Agent. SUSE's sample nginx answers 404
	// to Go's own.
	Version string
	// Platform chooses from an index; nil: that of this machine.
	Platform platforms.MatchComparer
	// Credentials gives the login for a repository on a host, zero for none, and
	// then why there is none where that is a problem; nil: none. It is not asked for
	// hosts with plain http.
	Credentials func(host, repository string) (hosts.Login, error)
	// TokenServers are hosts that see the logins of a registry although they are
	// another host, by the registry's host.
	TokenServers map[string]string
	// Roots are the authorities for hosts that have no ca of their own in hosts.toml,
	// another pool when they change; nil, or a nil pool: those that Go finds when it
	// first needs them.
	Roots func() *x509.CertPool
	// Proxy as in http.Transport; nil: http.ProxyFromEnvironment.
	Proxy func(*http.Request) (*url.URL, error)
	// Wrap puts limits, a budget or a recorder around what goes on the wire,
	// token requests included. It is called once for each TLS configuration, so
	// state over hosts lives outside of it. nil: nothing.
	Wrap func(http.RoundTripper) http.RoundTripper
	// RequestsPerHour is the budget of this node: what it may send to all hosts
	// together, at once or over the hour. Questions wait for it; pulls take from it
	// and never wait. 0: no budget.
	RequestsPerHour int
	// ConnectionsPerHost bounds the connections that are open to one host at once;
	// 0: 4. A connection that a layer comes through is taken until its end, so less
	// than one more than the layers that are pulled at once leaves none for tokens.
	ConnectionsPerHost int
	// LeastSpeed is what a layer has to bring, in bytes a second over a minute; 0: a
	// pull may be as slow as it is.
	LeastSpeed int64
	// Now is the clock for waits and for the budget; nil: time.Now.
	Now func() time.Time
	// Log is told of what was left out; nil: nowhere.
	Log *slog.Logger
}

// Registry is the source of releases over registry hosts. It is safe for
// concurrent use.
type Registry struct {
	hosts    *hosts.Set
	net      *network
	platform platforms.MatchComparer
	now      func() time.Time
	log      *slog.Logger
	// leastSpeed is that of Options.
	leastSpeed int64
}

var (
	_ agent.Source = (*Registry)(nil)
	_ agent.Pacer  = (*Registry)(nil)
)

// connectionsPerHost is what a pull of three layers needs beside a question.
const connectionsPerHost = 4

// New makes a registry source; nothing is read or asked yet.
func New(o Options) *Registry {
	if o.Platform == nil {
		o.Platform = platforms.Default()
	}
	if o.Proxy == nil {
		o.Proxy = http.ProxyFromEnvironment
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Version == "" {
		o.Version = "unknown"
	}
	if o.Roots == nil {
		o.Roots = func() *x509.CertPool { return nil }
	}
	if o.ConnectionsPerHost == 0 {
		o.ConnectionsPerHost = connectionsPerHost
	}
	n := &network{
		userAgent: "image-update-agent/" + o.Version, roots: o.Roots, proxy: o.Proxy, wrap: o.Wrap,
		login: o.Credentials, tokenServers: o.TokenServers, log: o.Log,
		pace: newPace(o.Now, o.RequestsPerHour), lanes: lanes{width: o.ConnectionsPerHost, hosts: map[string]*lane{}},
	}
	return &Registry{
		hosts:    hosts.New(o.CertsDirs, n),
		net:      n,
		platform: o.Platform,
		now:      o.Now,
		log:      o.Log,

		leastSpeed: o.LeastSpeed,
	}
}

// Counts tells what went over the wire since New.
func (r *Registry) Counts() Counts { return r.net.counters.read() }

// Close ends the idle connections. The registry can still be used.
func (r *Registry) Close() { r.net.closeIdle() }

// What a host must be capable of. A host that resolves must also serve what it
// names, as containerd has it.
const (
	mayResolve = docker.HostCapabilityPull | docker.HostCapabilityResolve
	mayPull    = docker.HostCapabilityPull
)

// each asks the hosts of a repository in their order until one answers. An
// error of ask that is no SourceError is an answer, too.
func (r *Registry) each(
	ctx context.Context, repository string, need docker.HostCapabilities, ask func(endpoint) error,
) error {
	named, err := reference.ParseNormalizedNamed(repository)
	if err != nil {
		return fmt.Errorf("registry: repository %q: %w", repository, err)
	}
	if !reference.IsNameOnly(named) {
		return fmt.Errorf("registry: repository %q: has a tag or digest", repository)
	}
	hosts, err := r.hosts.Of(reference.Domain(named))
	if err != nil {
		return &agent.SourceError{Repository: repository, Err: fmt.Errorf("certs.d: %w", err)}
	}
	var failed []*agent.SourceError
	for _, host := range hosts {
		if !host.Capabilities.Has(need) {
			continue
		}
		err := ask(newEndpoint(named, host))
		var noAnswer *agent.SourceError
		if !errors.As(err, &noAnswer) {
			return err
		}
		failed = append(failed, noAnswer)
		if ctx.Err() != nil || isOverBudget(err) {
			break // the next host would be asked for nothing, or not at all
		}
	}
	if len(failed) == 0 {
		return &agent.SourceError{Repository: repository, Err: errors.New("no host has the capability")}
	}
	return weightiest(failed)
}
