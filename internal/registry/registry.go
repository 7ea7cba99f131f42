// SPDX-License-Identifier: Apache-2.0

// Package registry is the source of releases over the network: it implements source.Source on containerd's registry
// hosts, so that the agent polls the same hosts in the same order as kubelet pulls from. Package hosts reads which ones
// these are, package transport sends the requests.
//
// # Words
//
// A namespace is the host in a repository's name: registry.suse.com in registry.suse.com/caasp/v4/velum, docker.io in
// docker.io/sles12/velum. A host is a server that may answer for it: the namespace itself (upstream) or a mirror from
// certs.d. A host with the capability resolve may resolve tags, one with pull may serve digests. An endpoint is one
// repository on one host.
//
// # Promises
//
//   - A poll of a tag is one HEAD request on a kept-alive connection. A GET
//     follows only if the host sends no digest or refuses HEAD.
//   - Hosts are asked in the order of hosts.toml. After anything but an answer (network
//     error, any status but 200, a wrong digest, a body over its limit) the next host
//     is asked, also after a 404, as in containerd. Only if every host
//     answered 404 the error is release.ErrNotFound. A request is never repeated on
//     the same host, except after a 401 that credentials may answer, and in a pull,
//     where an interrupted layer is resumed. A request that was not sent is
//     reported as such (release.SourceError.Unasked).
//   - Tag lists come from hosts with resolve, because a list has tags.
//   - Size, count and time of all input are limited (limits.go here and in
//     transport), digests are computed over the received bytes, and an ambiguous
//     manifest (CVE-2021-41190) is rejected.
package registry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"github.com/containerd/containerd/v2/core/remotes/docker"
	"github.com/containerd/platforms"

	"github.com/kubic-project/image-update-agent/agent/localregistry"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/source"
	"github.com/kubic-project/image-update-agent/internal/registry/hosts"
	"github.com/kubic-project/image-update-agent/internal/registry/transport"
)

// Options configure hosts and requests. The zero value asks each namespace itself, over https.
type Options struct {
	transport.Options

	// CertsDirs are containerd's registry directories (its config_path, split at the colons). The first one with the
	// namespace, or with _default, wins.
	CertsDirs []string
	// HostsIgnored returns why containerd currently ignores them, empty if it does not. It is called if there is a
	// directory for a namespace; nil: containerd never ignores them.
	HostsIgnored func() (why string, err error)
	// Platform chooses from an index; nil: that of this machine.
	Platform platforms.MatchComparer
	// LeastSpeed is the minimum speed of a layer, in bytes per second over a minute; 0: no minimum.
	LeastSpeed int64
}

// Registry is the source of releases over registry hosts. It is safe for
// concurrent use.
type Registry struct {
	hosts      *hosts.Set
	client     *transport.Client
	platform   platforms.MatchComparer
	leastSpeed int64
	log        *slog.Logger
	documents  documents
	private    sync.Map // by repository: whether the last answer needed a login
}

var (
	_ source.Source = (*Registry)(nil)
	_ record.Pacer  = (*Registry)(nil)
)

// New returns a registry source; it reads and requests nothing yet.
func New(o Options) *Registry {
	if o.Platform == nil {
		o.Platform = platforms.Default()
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	client := transport.New(o.Options)
	set := hosts.New(o.CertsDirs, client)
	set.Ignored = o.HostsIgnored
	return &Registry{
		hosts: set, client: client,
		platform: o.Platform, leastSpeed: o.LeastSpeed, log: o.Log,
	}
}

// Counts are the counts of network traffic.
type Counts = transport.Counts

// Counts returns the network traffic since New.
func (r *Registry) Counts() Counts { return r.client.Counts() }

// Close closes idle connections. The registry can still be used.
func (r *Registry) Close() { r.client.Close() }

// Pace returns the waits that hosts asked for and the rest of the budget.
func (r *Registry) Pace() record.Pace { return r.client.Pace() }

// Resume restores a saved state. Later waits and requests stay.
func (r *Registry) Resume(kept record.Pace) { r.client.Resume(kept) }

// TryAgain allows one request to each host that waits because it did not answer, or that asked to wait.
func (r *Registry) TryAgain() { r.client.TryAgain() }

// The required capabilities of a host. A host that resolves must also be able to pull, as in containerd.
const (
	mayResolve = docker.HostCapabilityPull | docker.HostCapabilityResolve
	mayPull    = docker.HostCapabilityPull
)

// each asks the hosts of a repository in order until one answers. An error of ask that is not a SourceError also counts
// as an answer, and so does one after which containerd asks no other host, because kubelet's pull would not reach the
// next host.
func each[T any](
	ctx context.Context, r *Registry, repository string, need docker.HostCapabilities, ask func(endpoint) (T, error),
) (answer T, err error) {
	name, err := release.ParseReference(repository)
	if err != nil {
		return answer, fmt.Errorf("registry: repository %q: %w", repository, err)
	}
	if name.Tag != "" || strings.Contains(repository, "@") {
		return answer, fmt.Errorf("registry: repository %q: has a tag or digest", repository)
	}
	namespace, path, _ := strings.Cut(name.Repository, "/")
	all, err := r.hosts.Of(namespace)
	if err != nil {
		return answer, &release.SourceError{Repository: repository, Err: fmt.Errorf("certs.d: %w", err)}
	}
	all = slices.DeleteFunc(slices.Clone(all), isOwn)
	var failed []*release.SourceError
	for _, host := range all {
		if !host.Capabilities.Has(need) {
			continue
		}
		answer, err := ask(r.endpoint(namespace, path, host))
		noAnswer, ok := errors.AsType[*release.SourceError](err)
		if !ok {
			return answer, err
		}
		failed = append(failed, noAnswer)
		if ctx.Err() != nil || noAnswer.Host == "" || noAnswer.Answered {
			break // asking the next host would be useless, or the budget is spent
		}
	}
	if len(failed) == 0 {
		return answer, &release.SourceError{Repository: repository, Err: errors.New("no host has the required capability")}
	}
	reported := weightiest(failed)
	if ignored := r.hosts.IgnoredFor(namespace); ignored != "" {
		reported.Err = fmt.Errorf("%w (%s)", reported.Err, ignored)
	}
	return answer, reported
}

var _ localregistry.Hosts = (*Registry)(nil)

// isOwn reports whether a host is the node's local registry. It is never asked, because its answers come from the
// agent.
func isOwn(h docker.RegistryHost) bool { return localregistry.Is(h.Scheme, h.Host) }

// Position returns the local registry's position among the hosts that may resolve tags. containerd reads hosts.toml for
// each pull, so a change counts at once.
func (r *Registry) Position(registry string) localregistry.Position {
	all, err := r.hosts.Now(registry)
	if err != nil {
		return localregistry.Off
	}
	var urls []string
	for _, h := range all {
		if h.Capabilities.Has(mayResolve) {
			urls = append(urls, h.Scheme+"://"+h.Host)
		}
	}
	return localregistry.PositionIn(urls)
}

// Private reports whether the last request for a repository needed a login.
func (r *Registry) Private(repository string) (private, known bool) {
	is, known := r.private.Load(repository)
	private, _ = is.(bool)
	return private, known
}
