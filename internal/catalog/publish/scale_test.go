// SPDX-License-Identifier: Apache-2.0

package publish_test

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/internal/catalog"
	"github.com/kubic-project/image-update-agent/internal/catalog/publish"
)

// BenchmarkScale has verbs act on a channel of so many releases, 32 of each image: without sets, and in sets of 100, each
// of one build of 100 images. It logs what each takes of the publisher and of the registry, which are one process.
func BenchmarkScale(b *testing.B) {
	for _, releases := range []int{10_000, 32_000} {
		for _, inSet := range []int{0, 100} {
			b.Run(fmt.Sprintf("%d in sets of %d", releases, inSet), func(b *testing.B) { scale(b, releases, inSet) })
		}
	}
}

// So many images that their pages are named by shards: who publishes and who reads next has them all.
func TestAManifestOfManyImagesIsReadByItsShards(t *testing.T) {
	t.Parallel()
	const images = 300
	h := newHouse(t, "ci")
	publisher := func() *publish.Publisher { return h.as(publish.Trust{}, "ci") }
	var all []catalog.Change
	for n := range images {
		all = append(all, catalog.Change{
			Image:   fmt.Sprintf("registry.example.com/made/image%03d", n),
			Release: catalog.Release{Tag: build(1), Digest: digest.FromString(fmt.Sprint(n)), Created: noon},
		})
	}
	h.does(publisher(), "stage", publish.Refresh(time.Time{}), publish.How{New: true})
	h.does(publisher(), "stage", added(all...), publish.How{})
	one := all[7]
	one.Release.Tag = build(2)
	h.does(publisher(), "stage", added(one), publish.How{})
	p := publisher()
	v, err := p.Read(t.Context(), "stage")
	require.NoError(t, err)
	_, body, err := h.m.Manifest(t.Context(), memoryRepository, "stage")
	require.NoError(t, err)
	stored, err := catalog.DecodeManifest(body)
	require.NoError(t, err)
	require.NotEmpty(t, stored.Shards)
	pages, err := p.Pages(t.Context(), v)
	require.NoError(t, err)
	require.Len(t, pages, images)
	require.Len(t, v.Pages, images)
}

func scale(b *testing.B, releases, inSet int) {
	b.Helper()
	m := newMemory()
	private, _ := newKey(b)
	keys := []*publish.Key{parsedKey(b, private)}
	var all []catalog.Change
	for n := range releases {
		image, r := n/catalog.Kept, catalog.Release{Tag: build(n % catalog.Kept), Digest: digest.FromString(fmt.Sprint(n)), Created: noon}
		if inSet > 0 {
			r.Set = fmt.Sprintf("set-%d.%d", image/inSet, n%catalog.Kept)
		}
		all = append(all, catalog.Change{Image: fmt.Sprintf("registry.example.com/made/image%05d", image), Release: r})
	}
	one := all[catalog.Kept-1].Member() // the newest build
	do := func(what string, verb func(ctx context.Context, p *publish.Publisher) error) {
		runtime.GC()
		cpu, stop := cpuTime(), peak()
		asked := &counted{Registry: m}
		p, err := publish.New(publish.Options{ // each verb is a process of its own
			Repository: memoryRepository, Registry: asked, Keys: keys, Now: func() time.Time { return noon },
		})
		require.NoError(b, err)
		require.NoError(b, verb(b.Context(), p))
		b.Logf("%-12s %6.2f s of CPU, %4d MB of heap, %5d blobs read", what,
			(cpuTime() - cpu).Seconds(), stop()>>20, asked.blobs.Load())
	}
	change := func(channel string, do publish.Verb, how publish.How) func(context.Context, *publish.Publisher) error {
		return func(ctx context.Context, p *publish.Publisher) error {
			_, err := p.Change(ctx, channel, do, how)
			return err
		}
	}
	promote := func(s publish.Selection) func(context.Context, *publish.Publisher) error {
		return func(ctx context.Context, p *publish.Publisher) error {
			from, err := p.Offer(ctx, "stage")
			if err == nil {
				_, err = p.Change(ctx, "prod", publish.Promote(from, publish.Promotion{Selection: s}), publish.How{})
			}
			return err
		}
	}
	for _, channel := range []string{"stage", "prod"} {
		do("refresh", change(channel, publish.Refresh(time.Time{}), publish.How{New: true}))
	}
	do("add", change("stage", added(all...), publish.How{}))
	do("promote all", promote(publish.Selection{All: true}))
	do("promote set", promote(publish.Selection{Set: all[0].Release.Set, All: inSet == 0}))
	do("add to a set", change("stage", added(catalog.Change{
		Image: "registry.example.com/made/another", Release: catalog.Release{
			Tag: build(1), Digest: digest.FromString("another"), Created: noon, Set: all[0].Release.Set,
		},
	}), publish.How{}))
	do("promote one", promote(publish.Selection{Images: []string{one}}))
	do("verify", func(ctx context.Context, p *publish.Publisher) error {
		_, err := p.Verify(ctx, "stage", false)
		return err
	})
	do("diff", func(ctx context.Context, p *publish.Publisher) error {
		from, err := p.Read(ctx, "stage")
		require.NoError(b, err)
		to, err := p.Read(ctx, "prod")
		require.NoError(b, err)
		_, err = p.Diff(ctx, from, to)
		return err
	})
}

// counted counts the blobs that are read.
type counted struct {
	publish.Registry

	blobs atomic.Int64
}

func (c *counted) Blob(ctx context.Context, repository string, desc ocispec.Descriptor) ([]byte, error) {
	c.blobs.Add(1)
	return c.Registry.Blob(ctx, repository, desc)
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// peak begins to watch the heap, and returns what ends it and returns the most that was in use.
func peak() func() uint64 {
	var most atomic.Uint64
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			var is runtime.MemStats
			runtime.ReadMemStats(&is)
			most.Store(max(most.Load(), is.HeapInuse))
			select {
			case <-end:
				return
			case <-time.After(50 * time.Millisecond):
			}
		}
	}()
	return func() uint64 {
		close(end)
		<-ended
		return most.Load()
	}
}
