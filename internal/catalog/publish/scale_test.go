// SPDX-License-Identifier: Apache-2.0

package publish_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/catalog"
	"github.com/kubic-project/image-update-agent/internal/catalog/channel"
	"github.com/kubic-project/image-update-agent/internal/catalog/publish"
	"github.com/kubic-project/image-update-agent/internal/catalog/store"
)

// perImage is how many releases each image of madeImages has.
const perImage = 32

// madeImages is a registry of images that it makes when it is asked, beside a catalog in memory. It counts requests.
type madeImages struct {
	http.Handler

	requests atomic.Int64
}

func (m *madeImages) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.requests.Add(1)
	path, is := strings.CutPrefix(r.URL.Path, "/v2/made/")
	if !is {
		m.Handler.ServeHTTP(w, r)
		return
	}
	image, rest, _ := strings.Cut(path, "/")
	kind, what, _ := strings.Cut(rest, "/")
	switch kind {
	case "tags":
		tags := make([]string, perImage)
		for n := range tags {
			tags[n] = build(n)
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"name": "made/" + image, "tags": tags})
	case "manifests":
		if digest.Digest(what).Validate() == nil {
			what = tagOfDigest(image, what)
		}
		body := madeManifest(image, what)
		w.Header().Set("Content-Type", ocispec.MediaTypeImageManifest)
		w.Header().Set("Docker-Content-Digest", digest.FromBytes(body).String())
		if r.Method != http.MethodHead {
			_, _ = w.Write(body)
		}
	default:
		_, _ = w.Write(madeConfig)
	}
}

var madeConfig = []byte(`{"os":"linux","architecture":"amd64","created":"2026-11-20T08:00:00Z","rootfs":{"type":"layers","diff_ids":[]}}`)

func madeManifest(image, tag string) []byte {
	body, _ := json.Marshal(ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest,
		Config:      ocispec.Descriptor{MediaType: ocispec.MediaTypeImageConfig, Digest: digest.FromBytes(madeConfig), Size: int64(len(madeConfig))},
		Layers:      []ocispec.Descriptor{ocispec.DescriptorEmptyJSON},
		Annotations: map[string]string{"of": image + ":" + tag},
	})
	return body
}

func tagOfDigest(image, d string) string {
	for n := range perImage {
		if digest.FromBytes(madeManifest(image, build(n))).String() == d {
			return build(n)
		}
	}
	return ""
}

// cost is what a step took.
type cost struct {
	b        *testing.B
	m        *madeImages
	wall     time.Time
	cpu      time.Duration
	requests int64
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func (m *madeImages) begin(b *testing.B) cost {
	b.Helper()
	runtime.GC()
	return cost{b, m, time.Now(), cpuTime(), m.requests.Load()}
}

func (c cost) end(what string) {
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	c.b.Logf("%-12s %7.1f s of CPU, %6.1f s, %7d requests, %4d MB of heap in use", what,
		(cpuTime() - c.cpu).Seconds(), time.Since(c.wall).Seconds(), c.m.requests.Load()-c.requests, mem.HeapInuse>>20)
}

// BenchmarkScale has each verb act on a catalog of so many releases, in images of 32 each. CPU and memory are of the
// publisher and of the registry together, which are one process.
func BenchmarkScale(b *testing.B) {
	for _, releases := range []int{1000, 10_000, 100_000} {
		b.Run(strconv.Itoa(releases), func(b *testing.B) { scale(b, releases) })
	}
}

func scale(b *testing.B, releases int) {
	b.Helper()
	m := &madeImages{Handler: registry.New()}
	r := &rig{t: b, host: "registry.example.com", handler: m}
	private, _ := newKey(b)
	fresh := func() *publish.Publisher { // each verb is a process of its own
		return r.publisher(func(o *publish.Options) {
			o.Store.Transport = direct{m}
			o.Keys = []*publish.Key{parsedKey(b, private)}
		})
	}
	r.begin(fresh(), "stage", "prod")
	var wanted []publish.Wanted
	for n := range releases - 1 {
		text := fmt.Sprintf("made/image%05d:%s", n/perImage, build(n%perImage))
		wanted = append(wanted, r.image(text))
	}
	step := m.begin(b)
	p := fresh()
	changes, err := p.Added(b.Context(), wanted, amd64)
	require.NoError(b, err)
	step.end("add: check")
	got, err := p.Change(b.Context(), publish.Request{Channel: "stage", Do: catalog.ActionAdd, Changes: changes})
	require.NoError(b, err)
	require.True(b, got.Changed)
	step.end("add: all")

	read := func(p *publish.Publisher, channel string) publish.Version {
		v, err := p.Current(b.Context(), channel)
		require.NoError(b, err)
		return v
	}
	step, p = m.begin(b), fresh()
	_, err = p.Diff(b.Context(), read(p, "stage"), read(p, "prod"))
	require.NoError(b, err)
	step.end("diff")

	step, p = m.begin(b), fresh()
	stage, prod := read(p, "stage"), read(p, "prod")
	selected, err := p.Select(b.Context(), stage, prod, publish.Selection{All: true})
	require.NoError(b, err)
	changes, err = p.Promoted(b.Context(), selected.Changes, nil)
	require.NoError(b, err)
	_, err = p.Change(b.Context(), publish.Request{Channel: "prod", Do: catalog.ActionPromote, Changes: changes})
	require.NoError(b, err)
	step.end("promote")

	step, p = m.begin(b), fresh()
	_, err = p.Pages(b.Context(), read(p, "stage"))
	require.NoError(b, err)
	step.end("inspect")

	step, p = m.begin(b), fresh()
	_, err = p.Log(b.Context(), read(p, "stage"))
	require.NoError(b, err)
	step.end("log")

	step, p = m.begin(b), fresh()
	_, err = p.Verify(b.Context(), "stage", false)
	require.NoError(b, err)
	step.end("verify")

	node := newPoller(b, r)
	node.poll("first poll", releases)

	step, p = m.begin(b), fresh()
	one := r.image(fmt.Sprintf("made/image%05d:%s", (releases-1)/perImage, build((releases-1)%perImage)))
	changes, err = p.Added(b.Context(), []publish.Wanted{one}, amd64)
	require.NoError(b, err)
	_, err = p.Change(b.Context(), publish.Request{Channel: "stage", Do: catalog.ActionAdd, Changes: changes})
	require.NoError(b, err)
	step.end("add one")
	node.poll("next poll", releases)
}

// poller is a node that follows stage, and counts what it reads.
type poller struct {
	*store.Client

	b       *testing.B
	host    string
	channel *channel.Channel
	bytes   int
}

func newPoller(b *testing.B, r *rig) *poller {
	b.Helper()
	c, err := store.New(store.Options{UserAgent: "test", Keychain: authn.NewMultiKeychain(), Transport: direct{r.handler}})
	require.NoError(b, err)
	p := &poller{Client: c, b: b, host: r.host}
	p.channel = channel.New(channel.Options{
		Repository: r.repository(), Channel: "stage", Dir: b.TempDir(), From: p, Signatures: policy.SignaturesOff, Now: time.Now,
	})
	return p
}

func (p *poller) Resolve(ctx context.Context, ref release.Reference) (release.Resolved, error) {
	d, err := p.Head(ctx, ref.Repository, ref.Tag)
	return release.Resolved{Digest: d}, err
}

func (p *poller) Manifest(ctx context.Context, repository, tag string) (string, []byte, error) {
	kind, body, err := p.Client.Manifest(ctx, repository, tag)
	p.bytes += len(body)
	return kind, body, err
}

func (p *poller) Blob(ctx context.Context, repository string, desc ocispec.Descriptor) ([]byte, error) {
	data, err := p.Client.Blob(ctx, repository, desc)
	p.bytes += len(data)
	return data, err
}

// poll reads the releases of 20 images, spread over all.
func (p *poller) poll(what string, releases int) {
	p.b.Helper()
	p.bytes = 0
	images := []string{}
	for n := range 20 {
		images = append(images, fmt.Sprintf("%s/made/image%05d", p.host, n*(releases/perImage-1)/19))
	}
	l, err := p.channel.Refresh(p.b.Context(), images)
	require.NoError(p.b, err)
	require.Len(p.b, l.Images, 20)
	p.b.Logf("%-12s %7d bytes of bodies, without the signature", what, p.bytes)
}
