// SPDX-License-Identifier: Apache-2.0

package agenttest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/source"
	"github.com/kubic-project/image-update-agent/tags"
)

// Host is the host of a Registry.
const Host = "registry.test"

// ErrRefused is the error of a registry that is down.
var ErrRefused = errors.New("connection refused")

// Counts are the numbers of requests to a Registry.
type Counts struct{ Heads, Lists, Describes int }

// Registry is a source.Source in memory. Safe for concurrent use.
type Registry struct {
	mu      sync.Mutex
	tags    map[release.Reference]digest.Digest
	builds  map[string]release.Build        // by repository@digest
	known   map[digest.Digest]release.Build // also after Vanish: a node keeps pulled content
	foreign map[digest.Digest]bool          // not for this platform
	counts  Counts
	down    error
	noLists error
	made    int
	// OnAsk, if set, is called for each request before its answer.
	OnAsk func(what, name string)
}

var _ source.Source = (*Registry)(nil)

// NewRegistry returns an empty registry.
func NewRegistry() *Registry {
	return &Registry{
		tags: map[release.Reference]digest.Digest{}, builds: map[string]release.Build{},
		known: map[digest.Digest]release.Build{}, foreign: map[digest.Digest]bool{},
	}
}

// Publish publishes a new image and moves all the tags to it.
func (r *Registry) Publish(repository string, names ...string) release.Release {
	r.mu.Lock()
	r.made++
	n := r.made
	r.mu.Unlock()
	return r.PublishBuild(repository, release.Build{
		Config: digest.FromString(fmt.Sprintf("config %d", n)), Size: int64(n),
		Created: time.Date(2026, 1, 1, 0, 0, n, 0, time.UTC),
	}, names...)
}

// PublishBuild publishes a new manifest of the given build: of an existing build, it is an image with the same content.
func (r *Registry) PublishBuild(repository string, b release.Build, names ...string) release.Release {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.made++
	rel := release.Release{Repository: repository, Build: b, Digest: digest.FromString(fmt.Sprintf("manifest %d", r.made))}
	r.builds[repository+"@"+rel.Digest.String()] = b
	r.known[rel.Digest] = b
	for _, name := range names {
		r.tags[release.Reference{Repository: repository, Tag: name}] = rel.Digest
		switch t, _ := tags.Parse(name); {
		case t.Form() == tags.Long:
			rel.Long = name
		case rel.Tag == "" || t.Form() == tags.Intermediate:
			rel.Tag = name
		}
	}
	if rel.Tag == "" {
		rel.Tag = rel.Long
	}
	return rel
}

// Release publishes a build as OBS does: short, intermediate and long tag.
func (r *Registry) Release(repository, app string, rev int, build string) release.Release {
	intermediate := fmt.Sprintf("%s-rev%d", app, rev)
	return r.Publish(repository, app, intermediate, intermediate+"-build"+build)
}

// Tag moves a tag to a digest, even if that does not exist.
func (r *Registry) Tag(repository, tag string, d digest.Digest) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tags[release.Reference{Repository: repository, Tag: tag}] = d
}

// Retract deletes a tag.
func (r *Registry) Retract(repository, tag string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.tags, release.Reference{Repository: repository, Tag: tag})
}

// Vanish deletes a digest and keeps the tags that name it, as OBS does if a registry cannot delete a tag.
func (r *Registry) Vanish(repository string, d digest.Digest) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.builds, repository+"@"+d.String())
}

// OtherPlatform marks a digest as built for another platform.
func (r *Registry) OtherPlatform(d digest.Digest) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.foreign[d] = true
}

// offersDigest reports whether a pull by digest would succeed.
func (r *Registry) offersDigest(repository string, d digest.Digest) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, there := r.builds[repository+"@"+d.String()]
	return there && r.down == nil
}

// Down makes every request fail with err; nil ends it. DownLists: only the lists.
func (r *Registry) Down(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.down = err
}

// DownLists makes only the tag lists fail with err; nil ends it.
func (r *Registry) DownLists(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.noLists = err
}

// Counts returns the numbers of requests since the last call, and resets them.
func (r *Registry) Counts() Counts {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.counts
	r.counts = Counts{}
	return c
}

// Resolve implements source.Source.
func (r *Registry) Resolve(ctx context.Context, ref release.Reference) (release.Resolved, error) {
	if err := r.asked(ctx, func(c *Counts) { c.Heads++ }, "resolve", ref.String(), ref.Repository); err != nil {
		return release.Resolved{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	d, ok := r.tags[ref]
	if !ok {
		return release.Resolved{}, notFound(ref.Repository, ref.Tag)
	}
	return release.Resolved{Digest: d, Host: Host}, nil
}

// Tags implements source.Source.
func (r *Registry) Tags(ctx context.Context, repository string) ([]string, error) {
	if err := r.asked(ctx, func(c *Counts) { c.Lists++ }, "tags", repository, repository); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.noLists != nil {
		return nil, r.noLists
	}
	var names []string
	for ref := range r.tags {
		if ref.Repository == repository {
			names = append(names, ref.Tag)
		}
	}
	if len(names) == 0 {
		return nil, notFound(repository, "tags")
	}
	slices.Sort(names) // a source promises no order, but a test must be repeatable
	return names, nil
}

// Describe implements source.Source.
func (r *Registry) Describe(ctx context.Context, repository string, d digest.Digest) (release.Build, error) {
	if err := r.asked(ctx, func(c *Counts) { c.Describes++ }, "describe", d.String(), repository); err != nil {
		return release.Build{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	b, ok := r.builds[repository+"@"+d.String()]
	switch {
	case !ok:
		return release.Build{}, notFound(repository, d.String())
	case r.foreign[d]:
		return release.Build{}, fmt.Errorf("%s@%s: %w", repository, d, release.ErrPlatform)
	}
	return b, nil
}

func (r *Registry) asked(ctx context.Context, count func(*Counts), what, name, repository string) error {
	r.mu.Lock()
	count(&r.counts)
	hear, held := r.OnAsk, r.down
	r.mu.Unlock()
	if se, ok := errors.AsType[*release.SourceError](held); !ok || !se.Unasked {
		release.Asking(ctx)
	}
	if hear != nil {
		hear(what, name)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	err := r.down
	if e := ctx.Err(); e != nil {
		err = e
	}
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*release.SourceError](err); ok {
		return err
	}
	return &release.SourceError{Repository: repository, Host: Host, Err: err}
}

// serves returns why a digest cannot be pulled; nil if it can.
func (r *Registry) serves(repository string, d digest.Digest) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, ok := r.builds[repository+"@"+d.String()]
	switch {
	case r.down != nil:
		return r.down
	case !ok:
		return release.ErrNotFound
	case r.foreign[d]:
		return release.ErrPlatform
	}
	return nil
}

func notFound(repository, what string) error {
	return &release.SourceError{
		Repository: repository, Host: Host, Status: 404, Err: fmt.Errorf("%s: %w", what, release.ErrNotFound),
	}
}

// Restore restores a digest after Vanish, or adds one from elsewhere.
func (r *Registry) Restore(repository string, d digest.Digest, b release.Build) digest.Digest {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.builds[repository+"@"+d.String()], r.known[d] = b, b
	return d
}
