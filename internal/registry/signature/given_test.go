// SPDX-License-Identifier: Apache-2.0

package signature

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func given(t *testing.T, names ...string) *Verifier {
	t.Helper()
	var pems [][]byte
	for _, name := range names {
		data, err := os.ReadFile("testdata/" + name + ".pem")
		require.NoError(t, err)
		pems = append(pems, data)
	}
	v, err := WithKeys(1, pems...)
	require.NoError(t, err)
	return v
}

func TestVerifyWithGivenKeys(t *testing.T) {
	t.Parallel()
	s := fixture(t, "cosign2-p256")
	got, err := s.verify(t, given(t, "other", "p256"))
	require.NoError(t, err)
	assert.Equal(t, s.Index, got.Signed)
	_, err = s.verify(t, given(t, "other"))
	require.ErrorIs(t, err, ErrWrong)
	_, err = WithKeys(1)
	require.ErrorIs(t, err, ErrNoKeys)
	_, err = WithKeys(1, []byte("no key"))
	require.Error(t, err)
}

func TestVerifyBytes(t *testing.T) {
	t.Parallel()
	payload, encoded := stolen(t, fixture(t, "cosign2-p256"))
	by, err := given(t, "p256").VerifyBytes(t.Context(), []byte(payload), encoded)
	require.NoError(t, err)
	assert.Regexp(t, "^sha256:[0-9a-f]{64}$", by)
	for _, v := range []struct {
		key, payload, encoded string
	}{{"other", payload, encoded}, {"p256", payload + " ", encoded}, {"p256", payload, encoded[4:]}, {"p256", payload, "?"}} {
		_, err = given(t, v.key).VerifyBytes(t.Context(), []byte(v.payload), v.encoded)
		require.ErrorIs(t, err, ErrWrong)
	}
}
