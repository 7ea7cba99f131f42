// SPDX-License-Identifier: Apache-2.0

package publish_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/internal/catalog"
	"github.com/kubic-project/image-update-agent/internal/catalog/publish"
)

// hide deletes tags of the catalog whose names begin so.
func (r *rig) hide(beginning string) {
	r.t.Helper()
	for _, tag := range r.tags() {
		if strings.HasPrefix(tag, beginning) {
			r.removeTag(tag)
		}
	}
}

func (r *rig) removeTag(tag string) {
	r.t.Helper()
	ref, err := name.NewTag(r.repository() + ":" + tag)
	require.NoError(r.t, err)
	require.NoError(r.t, remote.Delete(ref))
}

// newestOp returns the tag of the op that only the newest version of a channel has.
func (r *rig) newestOp(channel string) string {
	r.t.Helper()
	m, err := catalog.DecodeManifest(r.manifest(channel))
	require.NoError(r.t, err)
	require.Len(r.t, m.Merged, 1)
	return m.Merged[0]
}

// withdrawn is a channel at version 3, which has withdrawn what version 2 listed.
func (r *rig) withdrawn(p *publish.Publisher, channel string) {
	r.t.Helper()
	r.begin(p, channel)
	r.push("velum", "one", "4.0.0-rev1-build1.1")
	_, err := r.add(p, channel, "velum:4.0.0-rev1-build1.1")
	require.NoError(r.t, err)
	r.gone(p, channel, "velum:4.0.0-rev1-build1.1")
}

// A registry that serves an older version and hides the op of a withdrawal gets nothing signed in
// which the withdrawn build is offered.
func TestPublisherRefusesAChannelThatWentBack(t *testing.T) {
	t.Parallel()
	private, public := newKey(t)
	const channel, back = "prod", "the channel went back from 3 to 2: version 3 has op-prod-"
	for name, test := range map[string]struct {
		attack func(r *rig, withdrawal string)
		want   string // error; empty: the withdrawal is still in the channel
	}{
		"older, op hidden": {func(r *rig, op string) {
			r.put(channel, r.manifest("prod-v00000002"))
			r.hide(op)
		}, back},
		"older, op there": {func(r *rig, _ string) { r.put(channel, r.manifest("prod-v00000002")) }, ""},
		"older, op of other content": {func(r *rig, op string) {
			r.put(channel, r.manifest("prod-v00000002"))
			r.put(op, []byte(`{"schemaVersion":2}`))
		}, back},
		"older, all ops hidden": {func(r *rig, _ string) {
			r.put(channel, r.manifest("prod-v00000002"))
			r.hide("op-")
		}, back},
		"the first, all ops hidden": {func(r *rig, _ string) {
			r.put(channel, r.manifest("prod-v00000001"))
			r.hide("op-")
		}, "the channel went back from 3 to 1"},
		"the first, the second hidden": {func(r *rig, op string) {
			r.put(channel, r.manifest("prod-v00000001"))
			r.hide("prod-v00000002")
			r.hide(op)
		}, "the channel went back from 3 to 1"},
		"the channel hidden": {func(r *rig, op string) {
			r.hide(op)
			r.removeTag(channel)
		}, "has no such channel"},
		"later versions of nobody": {func(r *rig, _ string) {
			r.put("prod-v00000009", []byte(`{"schemaVersion":2}`))
			r.put("prod-v00000010", r.manifest("prod-v00000002"))
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			sign := func(o *publish.Options) { o.Keys = []*publish.Key{parsedKey(t, private)} }
			r.withdrawn(r.publisher(sign), channel)
			test.attack(r, r.newestOp(channel))
			before := r.tags()
			p := r.publisher(sign)
			r.push("velum", "two", "4.0.0-rev1-build1.2")
			_, err := r.add(p, channel, "velum:4.0.0-rev1-build1.2")
			if test.want == "" {
				require.NoError(t, err)
				assert.Equal(t, []string{"4.0.0-rev1-build1.2", "-4.0.0-rev1-build1.1"}, r.listed(p, channel, "velum"))
				return
			}
			require.ErrorContains(t, err, test.want)
			assert.Equal(t, before, r.tags(), "nothing is stored")
			if name == "the channel hidden" {
				_, err = p.Change(t.Context(), channel, publish.Refresh(time.Time{}), publish.How{New: true})
				require.ErrorContains(t, err, "the channel went back from 3 to 0")
				return
			}
			assert.Equal(t, publish.KindOlder, kindOf(err), "%v", err)
			for _, who := range []*publish.Publisher{p, r.publisher(func(o *publish.Options) { o.All = [][]byte{public} })} {
				_, err = who.View(t.Context(), channel)
				assert.Equal(t, publish.KindOlder, kindOf(err), "who promotes or mirrors: %v", err)
			}
			_, err = p.Change(t.Context(), channel, publish.Settle, publish.How{Out: t.TempDir()})
			assert.Equal(t, publish.KindOlder, kindOf(err), "%v", err)
			findings, err := p.Verify(t.Context(), channel, false)
			require.NoError(t, err)
			assert.NotEmpty(t, findings)
		})
	}
}

// Who remembers the highest version notices an older one, even where the registry hides all later ones.
func TestPublisherRemembersTheHighestVersion(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	private, public := newKey(t)
	file := filepath.Join(t.TempDir(), "versions.json")
	with := func(o *publish.Options) { o.Keys, o.State = []*publish.Key{parsedKey(t, private)}, file }
	r.withdrawn(r.publisher(with), "prod")
	old := r.manifest("prod-v00000002")
	newest := r.newestOp("prod")
	r.hide("prod-v00000003")
	r.hide(newest)
	r.put("prod", old)
	before := r.tags()
	for _, options := range []func(o *publish.Options){with, func(o *publish.Options) { o.All, o.State = [][]byte{public}, file }} {
		p := r.publisher(options)
		_, err := p.Change(t.Context(), "prod", publish.Refresh(time.Time{}), publish.How{})
		assert.Equal(t, publish.KindOlder, kindOf(err), "%v", err)
		require.ErrorContains(t, err, "the channel went back from 3 to 2")
		_, err = p.Read(t.Context(), "prod")
		assert.Equal(t, publish.KindOlder, kindOf(err), "%v", err)
	}
	assert.Equal(t, before, r.tags(), "nothing is stored")
	_, err := r.publisher(func(o *publish.Options) { o.Keys = []*publish.Key{parsedKey(t, private)} }).Read(t.Context(), "prod")
	require.NoError(t, err, "who does not remember cannot know")

	require.NoError(t, os.WriteFile(file, []byte("{"), 0o600))
	_, err = r.publisher(with).Read(t.Context(), "prod")
	assert.Equal(t, publish.KindInput, kindOf(err), "a file that cannot be read is no empty one: %v", err)
}

// The file has the highest version, whoever writes it at once. Another user who can read it may lock it and its
// directory.
func TestManyRememberInOneFile(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	file := filepath.Join(t.TempDir(), "versions.json")
	require.NoError(t, os.WriteFile(file, []byte("{}"), 0o640))
	for _, path := range []string{file, filepath.Dir(file)} {
		other, err := os.Open(path)
		require.NoError(t, err)
		t.Cleanup(func() { _ = other.Close() })
		require.NoError(t, syscall.Flock(int(other.Fd()), syscall.LOCK_SH)) //nolint:forbidigo // the other user
	}
	var all sync.WaitGroup
	for n := range 8 {
		all.Go(func() {
			p := r.publisher(func(o *publish.Options) { o.State = file })
			r.begin(p, fmt.Sprintf("channel%d", n))
		})
	}
	all.Wait()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, 8, strings.Count(string(text), `"version": 1,`), string(text))
	info, err := os.Stat(file)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o640), info.Mode(), "it is for the same users")
}

// A registry that lets nobody move a tag fails each change, and is not filled with versions.
func TestImmutableTagsLeaveOneVersionBehind(t *testing.T) {
	t.Parallel()
	private, _ := newKey(t)
	for _, isSigned := range []bool{false, true} {
		r := newRig(t)
		immutable := true
		p := func() *publish.Publisher {
			return r.publisher(func(o *publish.Options) {
				if isSigned {
					o.Keys = []*publish.Key{parsedKey(t, private)}
				}
				o.Store.Transport = transportFunc(func(req *http.Request) (*http.Response, error) {
					if immutable && req.Method == http.MethodPut && strings.HasSuffix(req.URL.Path, "/manifests/stage") {
						return answered(req, http.StatusPreconditionFailed, `{"errors":[{"code":"PRECONDITION","message":"configured as immutable"}]}`)
					}
					return http.DefaultTransport.RoundTrip(req)
				})
			})
		}
		immutable = false
		r.begin(p(), "stage")
		immutable = true
		r.push("velum", "one", "4.0.0-rev1-build1.1")
		_, err := r.add(p(), "stage", "velum:4.0.0-rev1-build1.1")
		require.ErrorContains(t, err, "immutable")
		tags := r.tags()
		for range 3 {
			_, err = r.add(p(), "stage", "velum:4.0.0-rev1-build1.1")
			require.ErrorContains(t, err, "immutable")
			assert.ElementsMatch(t, tags, r.tags())
		}
		immutable = false
		got := r.does(p(), "stage", publish.Settle, publish.How{})
		assert.EqualValues(t, 2, got.Version)
		assert.Len(t, r.listed(p(), "stage", "velum"), 1)
	}
}
