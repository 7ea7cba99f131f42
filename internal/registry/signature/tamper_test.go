// SPDX-License-Identifier: Apache-2.0

package signature

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// signedText is a signed text with its signature's text; bundles have both as base64.
type signedText struct {
	payload, sig string
	check        func(payload, sig string) error
}

func signedTexts(t testing.TB) map[string]signedText {
	t.Helper()
	all := map[string]signedText{}
	for _, kind := range []string{"p256", "p384", "ed25519", "rsa3072", "rsa4096"} {
		r := ringOf(t, kind)
		simple := fixture(t, "cosign2-"+kind)
		payload, sig := stolen(t, simple)
		all["simple "+kind] = signedText{payload, sig, func(payload, sig string) error {
			_, err := r.simple([]byte(payload), sig, owner{repository: simple.Repository}, simple.Index)
			return err
		}}
		s := fixture(t, "cosign3-"+kind)
		whole := bundleOf(t, s)
		b, err := parseBundle([]byte(whole))
		require.NoError(t, err)
		all["bundle "+kind] = signedText{b.Envelope.Payload, b.Envelope.Signatures[0].Sig, func(payload, sig string) error {
			changed, err := parseBundle([]byte(whole))
			if err != nil {
				return err
			}
			changed.Envelope.Payload, changed.Envelope.Signatures[0].Sig = payload, sig
			_, err = r.statement(changed, owner{repository: s.Repository}, s.Index)
			return err
		}}
	}
	return all
}

// Each base64 text decodes in one way, and no two texts to the same bytes.
func TestDecode(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"": "", "QQ==": "A", "QUI=": "AB", "QUJD": "ABC"} {
		got, err := decode(text, 4)
		require.NoError(t, err, text)
		assert.Equal(t, want, string(got))
	}
	for _, text := range []string{"QR==", "QUJ=", "QQ", "QQ=", "QQ==\n", "Q\nQ==", "QUJDQUJD", "-_-_", "Q Q="} {
		_, err := decode(text, 7)
		require.Error(t, err, text)
	}
}

// Changing one bit of the signed content or of the signature's text makes it invalid. With one key all bits are tried,
// because base64 has bits that only strict decoding checks; with the others, one bit of each byte.
func TestEachBitCounts(t *testing.T) {
	t.Parallel()
	for name, s := range signedTexts(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.NoError(t, s.check(s.payload, s.sig))
			step := 9
			if strings.HasSuffix(name, "p256") {
				step = 1
			}
			for i := 0; i < 8*len(s.payload); i += step {
				require.Error(t, s.check(flipped(s.payload, i), s.sig), "bit %d of the payload", i)
			}
			for i := 0; i < 8*len(s.sig); i += step {
				require.Error(t, s.check(s.payload, flipped(s.sig, i)), "bit %d of the signature", i)
			}
		})
	}
}

func flipped(text string, bit int) string {
	data := []byte(text)
	data[bit/8] ^= 1 << (bit % 8)
	return string(data)
}

// isSameBase64 reports whether two texts have the same bytes: base64 ignores line breaks, and the unused bits at the end.
func isSameBase64(a, b string) bool {
	is, err := base64.StdEncoding.DecodeString(a)
	want, _ := base64.StdEncoding.DecodeString(b)
	return err == nil && bytes.Equal(is, want)
}

// Any other change of the text makes it invalid: inserted, removed or replaced bytes.
func TestNoChangedTextIsValid(t *testing.T) {
	t.Parallel()
	texts := signedTexts(t)
	rapid.Check(t, func(t *rapid.T) {
		s := texts[rapid.SampledFrom([]string{"simple p256", "simple ed25519", "bundle p256", "bundle rsa4096"}).Draw(t, "text")]
		change := func(text string) string {
			from := rapid.IntRange(0, len(text)).Draw(t, "from")
			to := rapid.IntRange(from, min(from+8, len(text))).Draw(t, "to")
			return text[:from] + rapid.StringOfN(rapid.RuneFrom([]rune("Az09+/=\n\r \"{}\x00é")), 0, 8, -1).Draw(t, "by") + text[to:]
		}
		payload, sig := s.payload, s.sig
		if rapid.Bool().Draw(t, "payload") {
			payload = change(payload)
		} else {
			sig = change(sig)
		}
		if (payload == s.payload || isSameBase64(payload, s.payload)) && isSameBase64(sig, s.sig) {
			return
		}
		if s.check(payload, sig) == nil {
			t.Fatalf("valid: payload %q, signature %q", payload, sig)
		}
	})
}

// A payload is valid only with its own signature.
func TestSignaturesAreNotSwapped(t *testing.T) {
	t.Parallel()
	texts := signedTexts(t)
	for a := range texts {
		for b := range texts {
			err := texts[a].check(texts[a].payload, texts[b].sig)
			assert.Equal(t, a == b, err == nil, "%s with the signature of %s", a, b)
		}
	}
}

// For any payload, a valid one was signed.
func FuzzPayload(f *testing.F) {
	r := ringOf(f, "p256", "p384", "ed25519", "rsa4096")
	s := fixture(f, "cosign2-p256")
	signed, sig := stolen(f, s)
	f.Add(signed, sig)
	f.Add("{}", "AAAA")
	f.Fuzz(func(t *testing.T, data, encoded string) {
		if _, err := r.simple([]byte(data), encoded, owner{repository: s.Repository}, s.Index); err == nil {
			assert.Equal(t, signed, data)
		}
		var p payload
		_ = unmarshal([]byte(data), &p, false)
	})
}

// For any bundle, a valid one has the signed payload.
func FuzzBundle(f *testing.F) {
	r := ringOf(f, "p256", "p384", "ed25519", "rsa4096")
	s := fixture(f, "cosign3-p256")
	whole := bundleOf(f, s)
	good, err := parseBundle([]byte(whole))
	require.NoError(f, err)
	f.Add(whole)
	f.Add(bundleOf(f, fixture(f, "blob-p256")))
	f.Add(strings.ReplaceAll(whole, "dsse", "DSSE"))
	f.Fuzz(func(t *testing.T, data string) {
		b, err := parseBundle([]byte(data))
		if err != nil {
			return
		}
		if b.Message != nil {
			_, err = r.message(b, []byte(s.Manifests[s.Index].Body), s.Index)
		} else {
			_, err = r.statement(b, owner{}, s.Index)
		}
		if err == nil && b.Envelope != nil {
			assert.Equal(t, good.Envelope.Payload, b.Envelope.Payload)
		}
	})
}

// The JSON parser accepts nothing that Go's rejects, and no duplicate keys.
func FuzzUnmarshal(f *testing.F) {
	f.Add(`{"a":1,"A":2}`)
	f.Add(`{"a":{"b":[1,{"c":null}]}}`)
	f.Fuzz(func(t *testing.T, data string) {
		var v any
		if unmarshal([]byte(data), &v, true) != nil {
			return
		}
		assert.True(t, json.Valid([]byte(data)))
	})
}

func FuzzKey(f *testing.F) {
	for _, name := range []string{"p256", "ed25519", "rsa3072"} {
		data, err := os.ReadFile(filepath.Join("testdata", name+".pem"))
		require.NoError(f, err)
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		k, err := parseKey(data)
		if err != nil {
			return
		}
		assert.NotEmpty(t, k.verifiers)
		assert.Len(t, k.fingerprint, len("sha256:")+64)
	})
}
