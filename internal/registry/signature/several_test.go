// SPDX-License-Identifier: Apache-2.0

package signature

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// people are signers. The last one's key is not trusted.
func people(t *testing.T) (all []signer, trusted [][]byte) {
	t.Helper()
	for range 4 {
		s := newSigner(t)
		all, trusted = append(all, s), append(trusted, s.pem(t))
	}
	return all, trusted[:3]
}

// Two of three keys must sign.
func TestSeveralKeysMustSign(t *testing.T) {
	t.Parallel()
	by, trusted := people(t)
	s := unsigned()
	payload := payloadFor(s.Index, s.Repository)
	signed := func(n int) ocispec.Descriptor { return s.layer(payload, by[n].sign(t, payload)) }
	forged := s.layer(payload, by[1].sign(t, payload+" "))
	ofPlatform := payloadFor(s.Platform, s.Repository)
	for name, c := range map[string]struct {
		layers   []ocispec.Descriptor // of the index
		bundles  []int                // of the index
		platform []ocispec.Descriptor
		want     error
		cause    string
	}{
		"two":                    {layers: []ocispec.Descriptor{signed(0), signed(2)}},
		"three":                  {layers: []ocispec.Descriptor{signed(0), signed(2), signed(1)}},
		"two and a forged one":   {layers: []ocispec.Descriptor{forged, signed(2), signed(0)}},
		"in both formats":        {layers: []ocispec.Descriptor{signed(0)}, bundles: []int{1}},
		"none":                   {want: ErrUnsigned},
		"one":                    {layers: []ocispec.Descriptor{signed(1)}, want: ErrUnsigned, cause: "by enough keys: 1, want 2"},
		"one twice":              {layers: []ocispec.Descriptor{signed(1), signed(1)}, want: ErrUnsigned, cause: "1, want 2"},
		"one in both formats":    {layers: []ocispec.Descriptor{signed(1)}, bundles: []int{1}, want: ErrUnsigned, cause: "1, want 2"},
		"one and a forged one":   {layers: []ocispec.Descriptor{signed(0), forged}, want: ErrWrong, cause: "1, want 2; "},
		"one and a stranger":     {layers: []ocispec.Descriptor{signed(0), signed(3)}, want: ErrWrong, cause: "made with another key"},
		"strangers":              {layers: []ocispec.Descriptor{signed(3), signed(3)}, want: ErrWrong, cause: "made with another key"},
		"another digest's other": {layers: []ocispec.Descriptor{signed(0)}, platform: []ocispec.Descriptor{s.layer(ofPlatform, by[1].sign(t, ofPlatform))}, want: ErrUnsigned, cause: "1, want 2"},
	} {
		shelf := unsigned()
		shelf.Blobs = s.Blobs
		shelf.simple(t, shelf.Index, c.layers...)
		shelf.simple(t, shelf.Platform, c.platform...)
		var bundles []string
		for _, n := range c.bundles {
			bundles = append(bundles, by[n].bundle(t, inTotoPayload, statementFor(s.Index)))
		}
		shelf.refer(t, shelf.Index, bundles...)
		v, err := WithKeys(2, trusted...)
		require.NoError(t, err)
		got, err := shelf.verify(t, v)
		require.ErrorIs(t, err, c.want, name)
		if c.want != nil {
			require.ErrorContains(t, err, c.cause, name)
			continue
		}
		assert.Len(t, got.Keys, 2, name)
		enough, err := v.Trusts(t.Context(), got.Keys)
		require.NoError(t, err)
		assert.True(t, enough, name)
		enough, err = v.Trusts(t.Context(), []string{got.Keys[0], got.Keys[0], "sha256:other"})
		require.NoError(t, err)
		assert.False(t, enough, name)
	}
}

// Whatever is signed by whom, in any order: as many different trusted keys count as have signed exactly this digest.
func TestKeysAreCounted(t *testing.T) {
	t.Parallel()
	by, trusted := people(t)
	rapid.Check(t, func(rt *rapid.T) {
		s := unsigned()
		payload := payloadFor(s.Index, s.Repository)
		other := payloadFor(s.Platform, s.Repository)
		var layers []ocispec.Descriptor
		signers := map[int]bool{}
		for range rapid.IntRange(0, 8).Draw(rt, "layers") {
			n := rapid.IntRange(0, 3).Draw(rt, "by")
			switch rapid.SampledFrom([]string{"valid", "other digest", "other bytes"}).Draw(rt, "kind") {
			case "valid":
				layers = append(layers, s.layer(payload, by[n].sign(t, payload)))
				signers[n] = signers[n] || n < len(trusted)
			case "other digest":
				layers = append(layers, s.layer(other, by[n].sign(t, other)))
			default:
				layers = append(layers, s.layer(payload, by[n].sign(t, other)))
			}
		}
		delete(signers, 3)
		s.simple(t, s.Index, layers...)
		want := rapid.IntRange(1, 3).Draw(rt, "required")
		v, err := WithKeys(want, trusted...)
		require.NoError(t, err)
		_, err = s.verify(t, v)
		if (err == nil) != (len(signers) >= want) {
			rt.Fatalf("%d keys signed, want %d: %v", len(signers), want, err)
		}
	})
}

// A key that is there twice, in another file, is one key. The keys may change while the agent runs.
func TestFewerKeysThanRequired(t *testing.T) {
	t.Parallel()
	by, trusted := people(t)
	_, err := WithKeys(2, trusted[0], trusted[0])
	require.ErrorIs(t, err, ErrFewKeys)
	require.ErrorContains(t, err, "1, want 2")

	dir := t.TempDir()
	for name, n := range map[string]int{"a": 0, "again": 0} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name+".pem"), trusted[n], 0o600))
	}
	v := New(Options{Dirs: []string{dir}, Require: 2})
	s := unsigned()
	payload := payloadFor(s.Index, s.Repository)
	s.simple(t, s.Index, s.layer(payload, by[0].sign(t, payload)), s.layer(payload, by[1].sign(t, payload)))
	_, err = s.verify(t, v)
	require.ErrorIs(t, err, ErrFewKeys)
	require.ErrorContains(t, err, fmt.Sprintf("1 in %s, want 2", dir))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "b.pem"), trusted[1], 0o600))
	_, err = s.verify(t, v)
	require.NoError(t, err)
}
