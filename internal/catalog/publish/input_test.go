// SPDX-License-Identifier: Apache-2.0

package publish_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/internal/catalog"
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
		"caasp/velum:latest":                                                {"", ""},
		"caasp/velum:4.0.0-rev1-build1.2":                                   {publish.KindTag, "the registry has no such tag, did you mean 4.0.0-rev1-build1.1?"},
		"caasp/velum:4.0.0-rev1":                                            {publish.KindTag, "intermediate tags move with each build: want a long tag, did you mean 4.0.0-rev1-build1.1?"},
		"caasp/velum:4.0.0":                                                 {publish.KindTag, "short tags move with each build: want a long tag, did you mean 4.0.0-rev1-build1.1?"},
		"caasp/velum:4.0.0-rev1-build":                                      {publish.KindTag, "not a long tag"},
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

func TestMovedLongTagIsAConflict(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.publisher(nil)
	r.begin(p, "stage")
	r.push("velum", "one", "4.0.0-rev1-build1.1")
	_, err := r.add(p, "stage", "velum:4.0.0-rev1-build1.1")
	require.NoError(t, err)
	r.push("velum", "two", "4.0.0-rev1-build1.1")
	before := r.tags()
	_, err = r.add(p, "stage", "velum:4.0.0-rev1-build1.1")
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
	got, err := p.Change(t.Context(), publish.Request{Channel: "stage", Do: catalog.ActionAdd, Changes: changes})
	require.NoError(t, err)
	assert.EqualValues(t, 2, got.Version, "one version for all")
	assert.Len(t, r.listed(p, "stage", "velum"), 20)

	_, err = publish.ParseBatch(strings.NewReader("velum\n" + r.host + "/velum:1-rev1-build1.1 a b\n:\n"))
	wrong, ok := errors.AsType[*publish.BatchError](err)
	require.True(t, ok, "%v", err)
	assert.Len(t, wrong.Lines, 3)
	wanted, err = publish.ParseBatch(strings.NewReader(fmt.Sprintf(
		"%[1]s/velum:4.0.0-rev1-build1.1\n%[1]s/velum:4.0.0-rev1-build1.99\n%[1]s/velum:4.0.0-rev1\n%[1]s/velum:4.0.0-rev1-build1.1 a\n", r.host)))
	require.NoError(t, err)
	_, err = p.Added(t.Context(), wanted, amd64)
	wrong, ok = errors.AsType[*publish.BatchError](err)
	require.True(t, ok, "%v", err)
	require.Len(t, wrong.Lines, 3)
	assert.Equal(t, []int{2, 3, 4}, []int{wrong.Lines[0].Number, wrong.Lines[1].Number, wrong.Lines[2].Number})
	_, err = publish.ParseBatch(strings.NewReader(strings.Repeat("x", 5000)))
	require.Error(t, err)
}

func FuzzParseBatch(f *testing.F) {
	f.Add("# x\nregistry.example.com/velum:1-rev1-build1.1@sha256:" + strings.Repeat("0", 64) + " set\n")
	f.Fuzz(func(t *testing.T, text string) {
		wanted, err := publish.ParseBatch(strings.NewReader(text))
		if err != nil {
			return
		}
		for _, w := range wanted {
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
	var batch strings.Builder
	for _, repository := range []string{"caasp/v4/velum", "caasp/v4/etcd", "other/etcd"} {
		for n := range 3 {
			tag := fmt.Sprintf("4.0.0-rev1-build1.%d", n)
			r.push(repository, repository+tag, tag)
			fmt.Fprintf(&batch, "%s/%s:%s caasp-%d\n", r.host, repository, tag, n)
		}
	}
	wanted, err := publish.ParseBatch(strings.NewReader(batch.String()))
	require.NoError(t, err)
	changes, err := p.Added(t.Context(), wanted, amd64)
	require.NoError(t, err)
	_, err = p.Change(t.Context(), publish.Request{Channel: "stage", Do: catalog.ActionAdd, Changes: changes})
	require.NoError(t, err)
	stage, err := p.Read(t.Context(), "stage")
	require.NoError(t, err)
	count := func(s publish.Selection) int {
		got, err := p.Select(t.Context(), stage, s)
		require.NoError(t, err)
		return len(got)
	}
	assert.Equal(t, 3, count(publish.Selection{All: true}))
	assert.Equal(t, 3, count(publish.Selection{Set: "caasp-1"}))
	assert.Equal(t, 2, count(publish.Selection{Images: []string{"velum", "v4/etcd:4.0.0-rev1-build1.0"}}))
	for word, want := range map[string]string{
		"velun":                     "lists no such image, did you mean " + r.host + "/caasp/v4/velum?",
		"etcd":                      "lists 2 such images, did you mean " + r.host + "/caasp/v4/etcd or " + r.host + "/other/etcd?",
		"velum:4.0.0-rev1-build1.7": "channel stage does not list it, did you mean 4.0.0-rev1-build1.0 or 4.0.0-rev1-build1.2?",
	} {
		_, err := p.Select(t.Context(), stage, publish.Selection{Images: []string{word}})
		assert.Equal(t, publish.KindImage, kindOf(err), "%v", err)
		if !strings.Contains(word, ":") {
			assert.ErrorContains(t, err, want)
		} else {
			assert.ErrorContains(t, err, "did you mean 4.0.0-rev1-build1.")
		}
	}
	_, err = p.Select(t.Context(), stage, publish.Selection{Set: "caasp-9"})
	require.ErrorContains(t, err, "has no such set, did you mean caasp-")
	_, err = p.Read(t.Context(), "stages")
	require.ErrorContains(t, err, "has no such channel, did you mean stage?")

	// A set of which a part was withdrawn is promoted no more.
	gone, err := p.Withdrawn(t.Context(), stage, []string{"velum:4.0.0-rev1-build1.1"}, "bsc#1", "4.0.0-rev1-build1.2")
	require.NoError(t, err)
	_, err = p.Change(t.Context(), publish.Request{Channel: "stage", Do: catalog.ActionWithdraw, Changes: gone})
	require.NoError(t, err)
	stage, err = p.Read(t.Context(), "stage")
	require.NoError(t, err)
	_, err = p.Select(t.Context(), stage, publish.Selection{Set: "caasp-1"})
	assert.Equal(t, publish.KindWithdrawn, kindOf(err), "%v", err)
	_, err = p.Select(t.Context(), stage, publish.Selection{Images: []string{"velum:4.0.0-rev1-build1.1"}})
	assert.Equal(t, publish.KindWithdrawn, kindOf(err), "%v", err)
	_, err = p.Withdrawn(t.Context(), stage, []string{"velum:4.0.0-rev1-build1.2"}, "x", "4.0.0-rev1-build1.1")
	assert.Equal(t, publish.KindWithdrawn, kindOf(err), "%v", err)
	again, err := p.Withdrawn(t.Context(), stage, []string{"velum:4.0.0-rev1-build1.1"}, "bsc#1", "4.0.0-rev1-build1.2")
	require.NoError(t, err)
	assert.Empty(t, again)
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
	v, err := p.Read(t.Context(), "prod")
	require.NoError(t, err)
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
	assert.Equal(t, "mirror:5000/"+r.host+"/velum:1", publish.Copy{Repository: r.host + "/velum", Tag: "1"}.Target("mirror:5000/"))
}
