// SPDX-License-Identifier: Apache-2.0

package publish_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/internal/catalog/publish"
)

func TestWhatIsAddedIsChecked(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.publisher(nil)
	r.begin(p, "stage")
	d := r.push("caasp/velum", "one", "4.0.0", "4.0.0-rev1", "4.0.0-rev1-build1.1", "latest")
	for text, want := range map[string]struct {
		kind publish.Kind
		text string
	}{
		"caasp/velum:4.0.0-rev1-build1.1":                                   {"", ""},
		"caasp/velum:4.0.0-rev1-build1.1@" + d:                              {"", ""},
		"caasp/velum:latest":                                                {publish.KindTag, "latest moves to each new build: give the tag of one build, did you mean 4.0.0-rev1-build1.1?"},
		"caasp/velum:4.0.0-rev1-build1.2":                                   {publish.KindTag, "the registry has no such tag, did you mean 4.0.0-rev1-build1.1?"},
		"caasp/velum:4.0.0-rev1":                                            {publish.KindTag, "the tag moves to each new build: use 4.0.0-rev1-build1.1"},
		"caasp/velum:4.0.0":                                                 {publish.KindTag, "the tag moves to each new build: use 4.0.0-rev1-build1.1, which names this one, did you mean 4.0.0-rev1-build1.1?"},
		"caasp/velum:4.0.0-rev1-build":                                      {publish.KindTag, "the registry has no such tag"},
		"caasp/velum:4.0.0-rev1-build1.1@" + d[:len(d)-1] + "x":             {publish.KindInput, "not an image"},
		"caasp/velum:4.0.0-rev1-build1.1@sha256:" + strings.Repeat("0", 64): {publish.KindDigest, "the tag names " + d},
		"caasp/velun:4.0.0-rev1-build1.1":                                   {publish.KindTag, "the registry has no such tag"},
	} {
		i, err := publish.ParseImage(r.host + "/" + text)
		if err == nil {
			_, err = p.Added(t.Context(), []publish.Wanted{{Image: i}}, amd64)
		}
		if want.kind == "" {
			assert.NoError(t, err, text)
			continue
		}
		assert.Equal(t, want.kind, kindOf(err), "%s: %v", text, err)
		assert.ErrorContains(t, err, want.text)
	}
	i := r.image("caasp/velum:4.0.0-rev1-build1.1").Image
	_, err := p.Lookup(t.Context(), i, []ocispec.Platform{amd64[0], {OS: "linux", Architecture: "s390x"}})
	assert.Equal(t, publish.KindPlatform, kindOf(err), "%v", err)
	require.ErrorContains(t, err, "not for linux/s390x")
}

// Any tag that stays is a release. One that moves is refused for what it does, and not for its form.
func TestAnyTagWithItsDigestIsARelease(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.publisher(nil)
	r.begin(p, "stage")
	for repository, tags := range map[string][]string{
		"kube-proxy": {"v1.34.2", "v1.34.2-amd64"},
		"loki":       {"2024.11.1", "2026.02.0"},
		"nginx":      {"1.25", "1.25.3", "mainline", "1.25.3-alpine", "1.25-alpine", "latest-amd64"},
		"minio":      {"RELEASE.2024-01-16T16-07-38Z", "RELEASE.2024-01-16T16-07-38Z-cpuv1", "latest", "edge-cicd"},
		"build":      {"20240115", "main-20240115-abc1234", "sha-0a1b2c3", "4.0.0-rev1-build", "4.0.0-rev1", "12", "12.1-rc.1", "Latest"},
	} {
		r.push(repository, repository, tags...)
		r.push(repository, repository+"other", "1.24.9", "0.1.2-rev1-build1.1")
	}
	for image, want := range map[string]string{
		"kube-proxy:v1.34.2": "", "kube-proxy:v1.34.2-amd64": "", "loki:2024.11.1": "", "loki:2026.02.0": "",
		"nginx:1.25.3": "", "nginx:1.25.3-alpine": "", "minio:RELEASE.2024-01-16T16-07-38Z": "",
		"build:20240115": "", "build:sha-0a1b2c3": "", "build:4.0.0-rev1-build": "", "build:12.1-rc.1": "", "build:4.0.0-rev1": "",
		"nginx:1.25": "use 1.25.3, which names this one", "nginx:1.25-alpine": "use 1.25.3-alpine, which names this one",
		"nginx:latest-amd64": "moves to each new build: give", "build:main-20240115-abc1234": "", "build:12": "",
		"nginx:mainline": "moves to each new build: give", "minio:latest": "moves to each new build: give", "build:Latest": "moves to each new build: give",
		"minio:edge-cicd": "moves to each new build: give",
	} {
		_, err := r.add(p, "stage", image)
		if want == "" {
			assert.NoError(t, err, image)
			continue
		}
		assert.Equal(t, publish.KindTag, kindOf(err), "%s: %v", image, err)
		assert.ErrorContains(t, err, want)
	}
}

// A tag that moves between two looks is none of a release.
func TestTagThatMovesWhileItIsRead(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.begin(r.publisher(nil), "stage")
	r.push("velum", "one", "v1.34.2")
	move := sync.OnceFunc(func() { r.push("velum", "two", "v1.34.2") })
	p := r.publisher(func(o *publish.Options) {
		o.Store.Transport = transportFunc(func(req *http.Request) (*http.Response, error) {
			if strings.Contains(req.URL.Path, "/blobs/") {
				move()
			}
			return http.DefaultTransport.RoundTrip(req)
		})
	})
	_, err := r.add(p, "stage", "velum:v1.34.2")
	assert.Equal(t, publish.KindTag, kindOf(err), "%v", err)
	require.ErrorContains(t, err, "the tag has moved while it was read")
}

type transportFunc func(*http.Request) (*http.Response, error)

func (f transportFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestMovedLongTagIsAConflict(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.publisher(nil)
	r.begin(p, "stage")
	r.lists(p, "stage", "", "velum:4.0.0-rev1-build1.1")
	r.push("velum", "two", "4.0.0-rev1-build1.1")
	before := r.tags()
	_, err := r.add(p, "stage", "velum:4.0.0-rev1-build1.1")
	assert.Equal(t, publish.KindDigest, kindOf(err), "%v", err)
	require.ErrorContains(t, err, "is listed with digest")
	assert.Equal(t, before, r.tags(), "nothing is asked for")
}

func TestBatch(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.publisher(nil)
	r.begin(p, "stage")
	var batch strings.Builder
	batch.WriteString("# builds of today\n\n")
	for n := range 20 {
		tag := fmt.Sprintf("4.0.0-rev1-build1.%d", n)
		r.push("velum", tag, tag)
		fmt.Fprintf(&batch, "%s/velum:%s  caasp-%d\n", r.host, tag, n)
	}
	wanted, err := publish.ParseBatch(strings.NewReader(batch.String()))
	require.NoError(t, err)
	require.Len(t, wanted, 20)
	assert.Equal(t, 3, wanted[0].Line)
	changes, err := p.Added(t.Context(), wanted, amd64)
	require.NoError(t, err)
	got := r.does(p, "stage", added(changes...), publish.How{})
	assert.EqualValues(t, 2, got.Version, "one version for all")
	assert.Len(t, r.listed(p, "stage", "velum"), 20)

	wrong := wrongOf(t, "velum\n"+r.host+"/velum:1-rev1-build1.1 a b\n:\n")
	assert.Len(t, wrong.Lines, 3)
	wanted, err = publish.ParseBatch(strings.NewReader(fmt.Sprintf(
		"%[1]s/velum:4.0.0-rev1-build1.1\n%[1]s/velum:4.0.0-rev1-build1.99\n%[1]s/velum:4.0.0-rev1\n%[1]s/velum:4.0.0-rev1-build1.1 a\n", r.host)))
	require.NoError(t, err)
	_, err = p.Added(t.Context(), wanted, amd64)
	wrong, ok := errors.AsType[*publish.BatchError](err)
	require.True(t, ok, "%v", err)
	require.Len(t, wrong.Lines, 3)
	assert.Equal(t, []int{2, 3, 4}, []int{wrong.Lines[0].Line, wrong.Lines[1].Line, wrong.Lines[2].Line})
	wrong = wrongOf(t, r.host+"/velum:1-rev1-build1.1 "+strings.Repeat("x", 200))
	assert.True(t, wrong.IsInput())
	require.ErrorContains(t, wrong, "not the name of a set")
	// A line that cannot be read hides no other.
	wrong = wrongOf(t, "velum\n"+strings.Repeat("x", 5000)+"\n\xff\x00\n"+
		r.host+"/velum:1\n:\n"+strings.Repeat("x ", 200_000))
	var numbers []int
	for _, line := range wrong.Lines {
		numbers = append(numbers, line.Line)
	}
	assert.Equal(t, []int{1, 2, 3, 5, 6}, numbers)
	require.ErrorContains(t, wrong, "line 2: "+strings.Repeat("x", 20))
	require.ErrorContains(t, wrong, "the line has more than 4096 bytes")
}

// wrongOf returns the lines of a batch that are wrong.
func wrongOf(t *testing.T, batch string) *publish.BatchError {
	t.Helper()
	wanted, err := publish.ParseBatch(strings.NewReader(batch))
	require.NoError(t, err)
	out := &publish.BatchError{}
	for _, w := range wanted {
		if w.Err != nil {
			out.Lines = append(out.Lines, w)
		}
	}
	return out
}

// endless repeats a text without end.
type endless string

func (e endless) Read(to []byte) (int, error) {
	if len(to) < len(e) {
		return copy(to, e), nil
	}
	return copy(to, strings.Repeat(string(e), len(to)/len(e))), nil
}

func TestBatchWithoutEndIsRefused(t *testing.T) {
	t.Parallel()
	for text, want := range map[endless]string{
		"\x00": "batch: line 1: the line has more than 1048576 bytes", "\n": "batch: more than 200000 lines",
		"# x\n": "batch: more than 200000 lines",
	} {
		_, err := publish.ParseBatch(text)
		require.EqualError(t, err, want)
		assert.Equal(t, publish.KindInput, kindOf(err))
	}
	wanted, err := publish.ParseBatch(strings.NewReader(strings.Repeat("\n", 199_999) +
		"registry.example.com/velum:1-rev1-build1.1\n"))
	require.NoError(t, err)
	assert.Len(t, wanted, 1, "the last line that is allowed")
}

func FuzzParseBatch(f *testing.F) {
	f.Add("# x\nregistry.example.com/velum:1-rev1-build1.1@sha256:" + strings.Repeat("0", 64) + " set\n")
	f.Fuzz(func(t *testing.T, text string) {
		wanted, err := publish.ParseBatch(strings.NewReader(text))
		if err != nil {
			return
		}
		for _, w := range wanted {
			if w.Err != nil {
				continue
			}
			again, err := publish.ParseImage(w.Image.String())
			require.NoError(t, err)
			require.Equal(t, w.Image.Repository, again.Repository)
		}
	})
}

func TestSelectionsHaveTheNearestRightThing(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.publisher(nil)
	r.begin(p, "stage", "prod")
	for n := range 3 {
		r.lists(p, "stage", fmt.Sprintf("caasp-%d", n), "caasp/v4/velum:"+build(n), "caasp/v4/etcd:"+build(n), "other/etcd:"+build(n))
	}
	count := func(s publish.Selection) int {
		got, err := selected(t.Context(), p, "stage", "prod", s)
		require.NoError(t, err)
		return len(got.Changes)
	}
	assert.Equal(t, 3, count(publish.Selection{All: true}))
	assert.Equal(t, 3, count(publish.Selection{Set: "caasp-1"}))
	assert.Equal(t, 3, count(publish.Selection{Images: []string{"velum", "v4/etcd", "other/etcd:4.0.0-rev1-build1.2"}}))
	for word, want := range map[string]string{
		"velun":                     "lists no such image, did you mean " + r.host + "/caasp/v4/velum?",
		"etcd":                      "lists 2 such images, did you mean " + r.host + "/caasp/v4/etcd or " + r.host + "/other/etcd?",
		"velum:4.0.0-rev1-build1.7": "channel stage does not list it, did you mean 4.0.0-rev1-build1.0 or 4.0.0-rev1-build1.2?",
	} {
		_, err := selected(t.Context(), p, "stage", "prod", publish.Selection{Images: []string{word}})
		assert.Equal(t, publish.KindImage, kindOf(err), "%v", err)
		if !strings.Contains(word, ":") {
			assert.ErrorContains(t, err, want)
		} else {
			assert.ErrorContains(t, err, "did you mean 4.0.0-rev1-build1.")
		}
	}
	_, err := selected(t.Context(), p, "stage", "prod", publish.Selection{Set: "caasp-9"})
	require.ErrorContains(t, err, "has no such set, did you mean caasp-")
	_, err = p.Read(t.Context(), "stages")
	require.ErrorContains(t, err, "has no such channel, did you mean stage?")

	// A set of which a part was withdrawn is promoted no more.
	gone := publish.Withdraw(publish.Withdrawal{
		Images: []string{"velum:4.0.0-rev1-build1.1"}, Reason: "bsc#1", Instead: []string{"4.0.0-rev1-build1.2"},
	})
	r.does(p, "stage", gone, publish.How{})
	_, err = selected(t.Context(), p, "stage", "prod", publish.Selection{Set: "caasp-1"})
	assert.Equal(t, publish.KindWithdrawn, kindOf(err), "%v", err)
	_, err = selected(t.Context(), p, "stage", "prod", publish.Selection{Images: []string{"velum:4.0.0-rev1-build1.1"}})
	assert.Equal(t, publish.KindWithdrawn, kindOf(err), "%v", err)
	err = r.withdraw(p, "stage", publish.Withdrawal{
		Images: []string{"velum:4.0.0-rev1-build1.2"}, Instead: []string{"4.0.0-rev1-build1.1"},
	})
	assert.Equal(t, publish.KindWithdrawn, kindOf(err), "%v", err)
	assert.False(t, r.does(p, "stage", gone, publish.How{}).Changed)
}

func TestCopies(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.publisher(nil)
	r.begin(p, "prod")
	old := r.push("velum", "one", "2.6.2-rev1-build1.1")
	middle := r.push("velum", "two", "4.0.0-rev1-build1.1")
	last := r.push("velum", "three", "4.0.0-rev1-build1.2")
	_, err := r.add(p, "prod", "velum:2.6.2-rev1-build1.1", "velum:4.0.0-rev1-build1.1", "velum:4.0.0-rev1-build1.2")
	require.NoError(t, err)
	v := r.read(p, "prod")
	lines := func(m publish.Mirrored) []string {
		copies, err := p.Copies(t.Context(), v, m)
		require.NoError(t, err)
		var out []string
		for _, c := range copies {
			assert.Equal(t, c.Repository+"@"+c.Digest.String(), c.Source())
			out = append(out, c.Kind+" "+c.Tag+" "+c.Digest.String())
		}
		return out
	}
	tail := []string{"catalog prod-v00000002 " + v.Digest.String(), "catalog prod " + v.Digest.String()}
	assert.Equal(t, append([]string{
		"image 4.0.0-rev1-build1.2 " + last, "image 4.0.0-rev1-build1.1 " + middle, "image 2.6.2-rev1-build1.1 " + old,
	}, tail...), lines(publish.Mirrored{}))
	assert.Equal(t, append([]string{
		"image 4.0.0-rev1-build1.2 " + last, "floating 4.0.0 " + last, "floating 4.0.0-rev1 " + last,
		"image 2.6.2-rev1-build1.1 " + old, "floating 2.6.2 " + old, "floating 2.6.2-rev1 " + old,
	}, tail...), lines(publish.Mirrored{Newest: 1, Floating: true}))
	r.push("kube", "four", "v1.34.1")
	newest := r.push("kube", "five", "v1.34.2")
	_, err = r.add(p, "prod", "kube:v1.34.1", "kube:v1.34.2")
	require.NoError(t, err)
	v = r.read(p, "prod")
	assert.Equal(t, "image v1.34.2 "+newest, lines(publish.Mirrored{Newest: 1, Floating: true})[0])
	assert.Len(t, lines(publish.Mirrored{Floating: true}), 3+4+2+2, "a release that a short tag names is its own one")
	for mirror, want := range map[string]string{
		"mirror:5000/": "mirror:5000/registry.example.com_5000/velum:1", "mirror.example.com/a": "mirror.example.com/a/registry.example.com_5000/velum:1",
	} {
		target, err := publish.Copy{Repository: "registry.example.com:5000/velum", Tag: "1"}.Target(mirror)
		require.NoError(t, err)
		assert.Equal(t, want, target)
		_, err = name.NewTag(target, name.StrictValidation)
		require.NoError(t, err)
	}
	target, err := publish.Copy{Repository: "Registry.example.com/velum", Tag: "1"}.Target("mirror.example.com")
	require.NoError(t, err)
	assert.Equal(t, "mirror.example.com/registry.example.com/velum:1", target)
	for _, mirror := range []string{"https://mirror.example.com", "mirror.example.com/Upper", "", "mirror.example.com:5000/a:1", "a b"} {
		_, err := publish.Copy{Repository: "registry.example.com/velum", Tag: "1"}.Target(mirror)
		assert.Equal(t, publish.KindInput, kindOf(err), mirror)
	}
}
