// SPDX-License-Identifier: Apache-2.0

package publish_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/internal/catalog"
	"github.com/kubic-project/image-update-agent/internal/catalog/publish"
)

// While two keys sign, whoever trusts one of them reads the channel; afterwards only the new key counts.
func TestRotationOfAKey(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	old, oldPublic := newKey(t)
	next, nextPublic := newKey(t)
	publisher := func(keys [][]byte, trusted ...[]byte) *publish.Publisher {
		return r.publisher(func(o *publish.Options) {
			for _, key := range keys {
				o.Keys = append(o.Keys, parsedKey(t, key))
			}
			o.All = trusted
		})
	}
	refresh := func(p *publish.Publisher) {
		t.Helper()
		_, err := change(t.Context(), p, request{Channel: "prod", Do: catalog.ActionRefresh})
		require.NoError(t, err)
	}
	reads := func(trusted []byte) error {
		_, err := publisher(nil, trusted).Read(t.Context(), "prod")
		return err
	}
	r.begin(publisher([][]byte{old}), "prod")
	refresh(publisher([][]byte{old, next}))
	require.NoError(t, reads(oldPublic))
	require.NoError(t, reads(nextPublic))
	refresh(publisher([][]byte{next}, oldPublic))
	require.NoError(t, reads(nextPublic))
	assert.Equal(t, publish.KindUnsigned, kindOf(reads(oldPublic)))
}

// Two of three keys must have signed: one alone does not count, nor one that is named twice.
func TestSeveralSignatures(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var private, public [3][]byte
	for n := range private {
		private[n], public[n] = newKey(t)
	}
	with := func(require int, keys ...int) *publish.Publisher {
		return r.publisher(func(o *publish.Options) {
			o.All, o.Require = public[:], require
			for _, n := range keys {
				o.Keys = append(o.Keys, parsedKey(t, private[n]))
			}
		})
	}
	r.begin(with(1, 0), "stage")
	r.begin(with(1, 0, 0), "test")
	r.begin(with(2, 0, 2), "prod")
	for channel, want := range map[string]publish.Kind{"stage": publish.KindUnsigned, "test": publish.KindUnsigned, "prod": ""} {
		_, err := with(2).Read(t.Context(), channel)
		assert.Equal(t, want, kindOf(err), "%s: %v", channel, err)
	}
	_, err := with(3).Read(t.Context(), "prod")
	require.ErrorContains(t, err, "not signed by enough keys: 2, want 3")
	_, err = change(t.Context(), with(2, 1, 2), request{Channel: "stage", Do: catalog.ActionRefresh})
	assert.Equal(t, publish.KindUnsigned, kindOf(err), "nothing is built upon it: %v", err)

	out := filepath.Join(t.TempDir(), "out")
	_, err = change(t.Context(), with(2), request{Channel: "prod", Do: catalog.ActionRefresh, Out: out})
	require.NoError(t, err)
	sign := func(n int) []byte { return signed(t, private[n], filepath.Join(out, publish.PayloadFile)) }
	_, err = with(2).PublishDir(t.Context(), out, [][]byte{sign(0), sign(0)}, false)
	require.ErrorContains(t, err, "too few keys signed it: 1, want 2")
	_, err = with(2).PublishDir(t.Context(), out, [][]byte{sign(0), sign(1)}, false)
	require.NoError(t, err)
	v, err := with(2).Read(t.Context(), "prod")
	require.NoError(t, err)
	assert.EqualValues(t, 2, v.Version)
}
