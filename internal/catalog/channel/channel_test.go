// SPDX-License-Identifier: Apache-2.0

package channel_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/catalog"
)

func TestUnchangedChannelIsOneRequest(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.publish(version(1, 3))
	l, err := w.refresh()
	require.NoError(t, err)
	assert.Equal(t, name+":prod", l.Catalog)
	assert.EqualValues(t, 1, l.Version)
	assert.Equal(t, d, l.Digest)
	assert.Len(t, l.Images[velum], 3)
	assert.False(t, l.IsListed(other), "its page was not asked for")
	assert.Equal(t, host, strings.Split(name, "/")[0])
	w.sent()

	_, err = w.refresh()
	require.NoError(t, err)
	assert.Equal(t, 1, w.sent())
	w.restart()
	l, err = w.refresh()
	require.NoError(t, err)
	assert.Equal(t, 1, w.sent(), "after a restart")
	assert.Len(t, l.Images[velum], 3)
	assert.Equal(t, l.Images, w.channel.Last(t.Context()).Images)
}

func TestOnlyPagesThatAreNewAreFetched(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.publish(version(1, 3))
	_, err := w.refresh(velum, other)
	require.NoError(t, err)
	w.publish(version(2, 4))
	w.sent()
	l, err := w.refresh(velum, other)
	require.NoError(t, err)
	assert.Equal(t, 3, w.sent(), "HEAD, manifest and the page that has changed")
	assert.Len(t, l.Images[velum], 4)
	assert.Len(t, l.Images[other], 1)

	l, err = w.refresh(velum, other, "r.example/unlisted")
	require.NoError(t, err)
	assert.False(t, l.IsListed("r.example/unlisted"))
	w.sent()
	_, err = w.refresh(velum, other, "r.example/unlisted")
	require.NoError(t, err)
	assert.Equal(t, 1, w.sent())
}

// Nothing of a bad version changes what is known.
func TestBadVersions(t *testing.T) {
	t.Parallel()
	manifest := func(edit func(*catalog.Manifest)) func(*world) {
		return func(w *world) {
			m, pages := version(11, 4)
			edit(&m)
			w.publish(m, pages)
		}
	}
	for title, c := range map[string]struct {
		breaks func(w *world)
		want   error
		text   string
	}{
		"away": {func(w *world) { w.answer(status(http.StatusServiceUnavailable)) }, nil, "503"},
		"gone": {func(w *world) { w.answer(status(http.StatusNotFound)) }, release.ErrNotFound, ""},
		"unsigned": {func(w *world) {
			d := w.publish(version(11, 4))
			delete(w.keys.signed, d)
		}, release.ErrUnsigned, ""},
		"signed by another key":                {func(w *world) { w.keys.signed[w.publish(version(11, 4))] = "another" }, release.ErrForged, ""},
		"of another name":                      {manifest(func(m *catalog.Manifest) { m.Name = "r.example/catalog" }), release.ErrCatalog, "published as"},
		"stage served as prod":                 {manifest(func(m *catalog.Manifest) { m.Channel = "stage" }), release.ErrCatalog, "of channel stage"},
		"older":                                {manifest(func(m *catalog.Manifest) { m.Version = 9 }), release.ErrCatalog, "older than version 10"},
		"the same version with another digest": {manifest(func(m *catalog.Manifest) { m.Version = 10 }), nil, "version 10 was"},
		"from the future": {
			manifest(func(m *catalog.Manifest) { m.Created = noon.Add(48 * time.Hour) }), release.ErrCatalog, "created at",
		},
		"no catalog": {func(w *world) {
			text := []byte(`{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":{"mediaType":"application/vnd.oci.empty.v1+json","digest":"` +
				digest.FromString("{}").String() + `","size":2},"layers":[]}`)
			w.put("prod", text)
			w.keys.signed[digest.FromBytes(text)] = "ours"
		}, release.ErrCatalog, "artifact type"},
		"a page that lies": {func(w *world) {
			w.publish(version(11, 4))
			w.answer(func(rw http.ResponseWriter, r *http.Request) bool {
				if strings.Contains(r.URL.Path, "/blobs/") {
					_, _ = rw.Write(bytes.Repeat([]byte("x"), 100))
					return true
				}
				return false
			})
		}, nil, "page of " + velum},
		"a page bomb": {func(w *world) { w.publishPage(velum, strings.Repeat(" ", 2<<20)) }, release.ErrCatalog, "more than"},
		"a page of another image": {
			func(w *world) { w.publishPage(velum, `{"image":"`+other+`","releases":[]}`) }, release.ErrCatalog, "the page belongs to",
		},
		"a manifest of 4 MiB and one byte": {func(w *world) {
			w.publish(version(11, 4))
			w.answer(func(rw http.ResponseWriter, r *http.Request) bool {
				if r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/manifests/") {
					rw.Header().Set("Content-Type", "application/vnd.oci.image.manifest.v1+json")
					_, _ = rw.Write(bytes.Repeat([]byte(" "), catalog.MaxManifest+1))
					return true
				}
				return false
			})
		}, nil, "too large"},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			known := w.publish(version(10, 3))
			_, err := w.refresh()
			require.NoError(t, err)
			c.breaks(w)
			for range 2 {
				l, err := w.refresh()
				require.Error(t, err)
				if c.want != nil {
					require.ErrorIs(t, err, c.want)
				} else {
					assert.NotErrorIs(t, err, release.ErrCatalog)
				}
				assert.Contains(t, err.Error(), c.text)
				assert.Contains(t, err.Error(), "catalog "+name+":prod: ")
				assert.Equal(t, known, l.Digest)
				assert.Len(t, l.Images[velum], 3)
			}
			w.answer(nil)
			w.publish(version(12, 5))
			l, err := w.refresh()
			require.NoError(t, err)
			assert.EqualValues(t, 12, l.Version)
		})
	}
}

func status(code int) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, _ *http.Request) bool {
		w.WriteHeader(code)
		return true
	}
}

// publishPage publishes version 11 with one page of any text.
func (w *world) publishPage(image, text string) {
	w.t.Helper()
	packed := pack(w.t, text)
	m, _ := version(11, 0)
	m.Pages = []catalog.PageRef{{Image: image, Digest: w.blob(packed), Size: int64(len(packed))}}
	data, d, err := m.Encode()
	require.NoError(w.t, err)
	w.keys.signed[d] = "ours"
	w.put("prod", data)
}

func TestRefusedVersionIsNotFetchedAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	m, pages := version(1, 3)
	m.Channel = "stage"
	w.publish(m, pages)
	_, err := w.refresh()
	require.ErrorIs(t, err, release.ErrCatalog)
	w.sent()
	_, err = w.refresh()
	require.ErrorIs(t, err, release.ErrCatalog)
	assert.Equal(t, 1, w.sent())
}

// A node without a clock of its own boots in 1970, and learns the time later.
func TestVersionFromTheFutureIsTakenOnceTheClockIsRight(t *testing.T) {
	t.Parallel()
	for title, clock := range map[string]time.Time{
		"1970":         time.Unix(0, 0),
		"two days ago": noon.Add(-48 * time.Hour),
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			want := w.publish(version(1, 3))
			w.now = clock
			for range 2 {
				_, err := w.refresh()
				require.ErrorIs(t, err, release.ErrCatalog)
				assert.Contains(t, err.Error(), "which is in the future (now: "+clock.UTC().Format(time.RFC3339))
				w.now = w.now.Add(time.Second)
				clock = w.now // the error names the clock of each refresh
			}
			w.now = noon
			l, err := w.refresh()
			require.NoError(t, err)
			assert.Equal(t, want, l.Digest)
		})
	}
}

func TestOlderVersionIsRefusedAfterARestartUntilItIsForgotten(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.publish(version(5, 3))
	_, err := w.refresh()
	require.NoError(t, err)
	w.publish(version(4, 2))
	w.restart()
	l, err := w.refresh()
	require.ErrorIs(t, err, release.ErrCatalog)
	assert.EqualValues(t, 5, l.Version)

	require.NoError(t, w.channel.Forget(t.Context()))
	files, err := os.ReadDir(w.dir)
	require.NoError(t, err)
	assert.Empty(t, files)
	l, err = w.refresh()
	require.NoError(t, err)
	assert.EqualValues(t, 4, l.Version)
}

func TestKeyThatIsRemovedEndsItsCatalog(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.publish(version(5, 3))
	_, err := w.refresh()
	require.NoError(t, err)
	*w.keys.trusted = nil
	clear(w.keys.signed)
	l, err := w.refresh()
	require.ErrorIs(t, err, release.ErrUnsigned)
	assert.Zero(t, l.Version, "nothing is known")

	*w.keys.trusted = []string{"ours"}
	w.publish(version(4, 3))
	_, err = w.refresh()
	require.ErrorIs(t, err, release.ErrCatalog, "an older version is refused all the same")
}

// A page has its digest, and is fetched again. Without the version that was verified last, an older one would be taken.
func TestDamagedState(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.publish(version(5, 3))
	_, err := w.refresh()
	require.NoError(t, err)
	pages, err := filepath.Glob(filepath.Join(w.dir, "*.page"))
	require.NoError(t, err)
	require.Len(t, pages, 1)
	require.NoError(t, os.WriteFile(pages[0], []byte("garbage"), 0o600))
	w.restart()
	l, err := w.refresh()
	require.NoError(t, err)
	assert.Len(t, l.Images[velum], 3)

	require.NoError(t, os.WriteFile(filepath.Join(w.dir, "catalog.json"), []byte("garbage"), 0o600))
	w.publish(version(4, 2))
	w.restart()
	assert.Zero(t, w.channel.Last(t.Context()).Version)
	for range 2 {
		l, err = w.refresh()
		require.ErrorContains(t, err, "stored version: "+filepath.Join(w.dir, "catalog.json")+": invalid character")
		assert.Zero(t, l.Version)
	}
	require.NoError(t, w.channel.Forget(t.Context()))
	l, err = w.refresh()
	require.NoError(t, err)
	assert.EqualValues(t, 4, l.Version)
}

func TestVersionThatCannotBeStoredIsNotTaken(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.publish(version(5, 3))
	require.NoError(t, os.WriteFile(w.dir, []byte("a file"), 0o600))
	l, err := w.refresh()
	require.Error(t, err)
	require.NotErrorIs(t, err, release.ErrCatalog)
	assert.Zero(t, l.Version)
}

func TestMarksOfAReleaseReachTheNode(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	m, pages := version(1, 1)
	r := &pages[1].Releases[0]
	r.Set, r.Rollout = "caasp-4.5.2", &catalog.Rollout{From: noon, Hours: 48}
	r.Withdrawn = &catalog.Withdrawal{At: noon, Reason: "bsc#1", To: "4.0.0-rev1-build1.2"}
	r.Critical = []string{"kernel"}
	r.Advisory = &catalog.Advisory{Note: "a note", Fixes: []string{"bsc#1"}, Severity: catalog.SeverityLow}
	w.publish(m, pages)
	l, err := w.refresh()
	require.NoError(t, err)
	assert.Equal(t, []catalog.Release{*r}, l.Images[velum])
}

func TestCatalogOfManyImagesAndReleases(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	m, pages := version(1, 3)
	// One page serves for all: what counts here is the manifest.
	data, err := pages[0].Encode()
	require.NoError(t, err)
	shared := w.blob(data)
	velumPage, err := pages[1].Encode()
	require.NoError(t, err)
	m.Pages = []catalog.PageRef{
		{Image: other, Digest: shared, Size: int64(len(data))},
		{Image: velum, Digest: w.blob(velumPage), Size: int64(len(velumPage))},
	}
	for n := range 13000 {
		m.Pages = append(m.Pages, catalog.PageRef{Image: fmt.Sprintf("registry.suse.com/z/%05d", n), Digest: shared, Size: int64(len(data))})
	}
	text, d, err := m.Encode()
	require.NoError(t, err)
	w.keys.signed[d] = "ours"
	shards, err := m.ShardBlobs()
	require.NoError(t, err)
	for _, data := range shards {
		w.blob(data)
	}
	w.put("prod", text)
	w.sent()
	l, err := w.refresh()
	require.NoError(t, err)
	assert.Equal(t, 4, w.sent(), "HEAD, the manifest, a shard, a page")
	assert.Len(t, l.Images[velum], 3)
	assert.Less(t, len(text), 60_000, "bytes of the manifest")

	m.Version++
	text, d, err = m.Encode()
	require.NoError(t, err)
	w.keys.signed[d] = "ours"
	w.put("prod", text)
	l, err = w.refresh()
	require.NoError(t, err)
	assert.Equal(t, 2, w.sent(), "the shard and the page are known")
	assert.Equal(t, m.Version, l.Version)
	assert.Len(t, l.Images[velum], 3)
}

// What is not known of a page is for whoever publishes: a node does not keep it.
func TestUnknownFieldsAreNotKept(t *testing.T) {
	w := newWorld(t)
	const images = 4
	var many []string
	m, _ := version(10, 1)
	m.Pages = nil
	for n := range images {
		image := fmt.Sprintf("registry.example.com/many%02d", n)
		many = append(many, image)
		var text strings.Builder
		fmt.Fprintf(&text, `{"image":%q,"releases":[`, image)
		for r := range 700 {
			fmt.Fprintf(&text, `{"tag":"1-rev1-build1.%d","digest":%q`, r, digest.FromString("1"))
			for field := range 15 {
				fmt.Fprintf(&text, `,"unknown%d%d":"%d"`, r, field, field)
			}
			text.WriteString("},")
		}
		data := pack(t, strings.TrimSuffix(text.String(), ",")+"]}")
		m.Pages = append(m.Pages, catalog.PageRef{Image: image, Digest: w.blob(data), Size: int64(len(data))})
	}
	body, d, err := m.Encode()
	require.NoError(t, err)
	w.keys.signed[d] = "ours"
	w.put("prod", body)
	for range 2 {
		before := heap()
		_, err = w.refresh(many...)
		require.NoError(t, err)
		assert.Less(t, heap()-before, int64(images*700*400), "bytes of the releases as they are known")
		w.restart()
	}
	runtime.KeepAlive(w)
}

func pack(t *testing.T, text string) []byte {
	t.Helper()
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, err := z.Write([]byte(text))
	require.NoError(t, err)
	require.NoError(t, z.Close())
	return packed.Bytes()
}

// heap returns how many bytes are in use.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
