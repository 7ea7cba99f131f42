// SPDX-License-Identifier: Apache-2.0

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
