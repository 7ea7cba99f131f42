// SPDX-License-Identifier: Apache-2.0

package ocimanifest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func repeated(open, entry, end string, n int) string {
	return open + strings.TrimSuffix(strings.Repeat(entry+",", n), ",") + end
}

// Documents at their limit and above it.
func TestBounds(t *testing.T) {
	t.Parallel()
	for title, c := range map[string]struct {
		bound int
		build func(n int) string
		want  string
	}{
		"a list":     {MaxEntries, func(n int) string { return repeated(`{"a":[`, `{}`, `]}`, n) }, "too many entries of a list: over 20000"},
		"of numbers": {MaxEntries, func(n int) string { return repeated(`[`, `1`, `]`, n) }, "too many entries"},
		"behind another": {
			MaxEntries, func(n int) string { return `[[1,2,3],"],{\"",` + repeated(`[`, `"]\\\""`, `]`, n) + `]` }, "too many entries",
		},
		"an object": {MaxMembers, func(n int) string { return repeated(`{`, `"a":1`, `}`, n) }, "too many members: over 200000"},
		"a list of lists": {
			MaxMembers / MaxEntries, func(n int) string {
				return repeated(`[`, repeated(`[`, `0`, `]`, MaxEntries-1), `]`, n)
			}, "too many members",
		},
		"depth": {maxDepth, func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }, "too many nested lists and objects: over 64"},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			require.NoError(t, CheckBounds([]byte(c.build(c.bound))))
			err := CheckBounds([]byte(c.build(c.bound + 1)))
			require.ErrorIs(t, err, ErrTooMany)
			assert.ErrorContains(t, err, c.want)
		})
	}
}

// For every document, however it is split, the counts are correct.
func TestBoundsCountWhatIsThere(t *testing.T) {
	t.Parallel()
	var value func(depth int) *rapid.Generator[any]
	value = func(depth int) *rapid.Generator[any] {
		leaf := rapid.OneOf(rapid.Float64().AsAny(), rapid.String().AsAny(), rapid.Just[any](nil))
		if depth == 0 {
			return leaf
		}
		return rapid.OneOf(
			leaf, rapid.SliceOfN(value(depth-1), 0, 5).AsAny(), rapid.MapOfN(rapid.String(), value(depth-1), 0, 5).AsAny(),
		)
	}
	rapid.Check(t, func(rt *rapid.T) {
		document := value(4).Draw(rt, "document")
		body, err := json.Marshal(document)
		require.NoError(rt, err)
		longest, members := counted(document)
		b := &Bounds{Entries: longest, Members: members}
		for part := range slicesOf(body, rapid.IntRange(1, 7).Draw(rt, "part")) {
			_, err := b.Write(part)
			require.NoError(rt, err)
		}
		if members > 0 {
			_, err = (&Bounds{Entries: longest, Members: members - 1}).Write(body)
			require.ErrorIs(rt, err, ErrTooMany)
		}
		if longest > 0 {
			_, err = (&Bounds{Entries: longest - 1, Members: members}).Write(body)
			require.ErrorIs(rt, err, ErrTooMany)
		}
	})
}

func slicesOf(body []byte, size int) func(func([]byte) bool) {
	return func(yield func([]byte) bool) {
		for len(body) > 0 {
			part := body[:min(size, len(body))]
			body = body[len(part):]
			if !yield(part) {
				return
			}
		}
	}
}

// counted returns the entries of the longest list, and all members; an empty one counts as one.
func counted(document any) (longest, members int) {
	var parts []any
	switch d := document.(type) {
	case []any:
		parts, longest = d, max(1, len(d))
	case map[string]any:
		for _, part := range d {
			parts = append(parts, part)
		}
	default:
		return 0, 0
	}
	members = max(1, len(parts))
	for _, part := range parts {
		l, m := counted(part)
		longest, members = max(longest, l), members+m
	}
	return longest, members
}

// Four megabytes of empty elements are rejected, in each kind of document, before they are decoded: BenchmarkMemory of
// the registry measures the cost of that.
func TestListsOfEmptyElements(t *testing.T) {
	t.Parallel()
	nothing := bytes.TrimSuffix(bytes.Repeat([]byte("{},"), (4<<20)/3), []byte(","))
	for kind, key := range map[string]string{ocispec.MediaTypeImageIndex: "manifests", ocispec.MediaTypeImageManifest: "layers"} {
		_, err := Parse(kind, []byte(`{"schemaVersion":2,"`+key+`":[`+string(nothing)+`]}`))
		require.ErrorIs(t, err, ErrTooMany, kind)
	}
	_, _, err := Document{}.Build([]byte(`{"history":[` + string(nothing) + `]}`))
	require.ErrorIs(t, err, ErrTooMany)
}

func TestLayersAreCounted(t *testing.T) {
	t.Parallel()
	layer := `{"digest":"` + digest.FromString("layer").String() + `","size":1}`
	build := func(n int) []byte {
		return []byte(repeated(`{"schemaVersion":2,"config":`+layer+`,"layers":[`, layer, `]}`, n))
	}
	d, err := Parse(ocispec.MediaTypeImageManifest, build(MaxLayers))
	require.NoError(t, err)
	assert.Len(t, d.Layers, MaxLayers)
	_, err = Parse(ocispec.MediaTypeImageManifest, build(10_000))
	require.EqualError(t, err, "manifest: too many layers: 10000, at most 500")
}

// An entry that containerd would treat as an image within an image is rejected before the pull.
func TestEmbeddedManifestsAreRefused(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{ocispec.MediaTypeImageManifest, ocispec.MediaTypeImageIndex} {
		const blob = `{"mediaType":"%s","digest":"sha256:%064d","size":1}`
		within, other := fmt.Sprintf(blob, kind, 1), fmt.Sprintf(blob, ocispec.MediaTypeImageConfig, 2)
		for _, body := range []string{
			`{"schemaVersion":2,"config":` + other + `,"layers":[` + within + `]}`,
			`{"schemaVersion":2,"config":` + within + `,"layers":[` + other + `]}`,
		} {
			_, err := Parse(ocispec.MediaTypeImageManifest, []byte(body))
			require.EqualError(t, err, `manifest: blob of media type "`+kind+`": an image within an image`)
		}
	}
}
