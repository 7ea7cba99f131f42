// SPDX-License-Identifier: Apache-2.0

package signature

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
)

// signer creates signatures that cosign would not.
type signer struct{ private *ecdsa.PrivateKey }

func newSigner(t testing.TB) signer {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	return signer{private}
}

func (s signer) pem(t testing.TB) []byte {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(&s.private.PublicKey)
	require.NoError(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
}

func (s signer) verifier(t testing.TB) *Verifier {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "signer.pem"), s.pem(t), 0o600))
	return New(Options{Dirs: []string{dir}})
}

// sign returns the signature of a message as base64.
func (s signer) sign(t testing.TB, message string) string {
	t.Helper()
	sum := sha256.Sum256([]byte(message))
	sig, err := ecdsa.SignASN1(rand.Reader, s.private, sum[:])
	require.NoError(t, err)
	return base64.StdEncoding.EncodeToString(sig)
}

// bundle returns a bundle with a signed statement in an envelope of a payload type.
func (s signer) bundle(t testing.TB, payloadType, statement string) string {
	t.Helper()
	pae := fmt.Sprintf("DSSEv1 %d %s %d %s", len(payloadType), payloadType, len(statement), statement)
	data, err := json.Marshal(map[string]any{
		"mediaType": bundleMediaType, "verificationMaterial": map[string]any{"publicKey": map[string]any{}},
		"dsseEnvelope": map[string]any{
			"payloadType": payloadType, "payload": base64.StdEncoding.EncodeToString([]byte(statement)),
			"signatures": []map[string]string{{"sig": s.sign(t, pae)}},
		},
	})
	require.NoError(t, err)
	return string(data)
}

func payloadFor(d digest.Digest, identity string) string {
	return fmt.Sprintf(`{"critical":{"identity":{"docker-reference":%q},"image":{"docker-manifest-digest":%q},`+
		`"type":"cosign container image signature"},"optional":{"creator":"OBS"}}`, identity, d)
}

func statementFor(d digest.Digest) string {
	return fmt.Sprintf(`{"_type":"https://in-toto.io/Statement/v1","subject":[{"digest":{"sha256":%q}}],`+
		`"predicateType":"https://sigstore.dev/cosign/sign/v1","predicate":{}}`, d.Encoded())
}

// Payloads signed by the right key that are not a signature of this image. Without a cause the payload is valid.
func TestPayloads(t *testing.T) {
	t.Parallel()
	by := newSigner(t)
	v := by.verifier(t)
	good := unsigned()
	payload := payloadFor(good.Index, good.Repository)
	for name, c := range map[string]struct{ old, new, cause string }{
		"as it is":              {"", "", ""},
		"another creator":       {`"OBS"`, `{"a":[1,2,null]}`, ""},
		"optional is null":      {`{"creator":"OBS"}`, `null`, ""},
		"white space":           {`{"critical"`, "\n { \"critical\"", ""},
		"another digest":        {good.Index.Encoded(), good.Platform.Encoded(), "is for"},
		"another type":          {"cosign container", "atomic container", "payload: type"},
		"another repository":    {good.Repository, "registry.suse.com/caasp/v4/etcd", "identity"},
		"no identity":           {good.Repository, "", "identity"},
		"new critical key":      {`"type":`, `"expires":1,"type":`, "unknown field"},
		"new key":               {`"optional":`, `"unsigned":1,"optional":`, "unknown field"},
		"digest twice":          {`"docker-manifest-digest"`, `"docker-manifest-digest":"x","docker-manifest-digest"`, "ambiguous"},
		"digest in two cases":   {`"docker-manifest-digest"`, `"Docker-Manifest-Digest":"x","docker-manifest-digest"`, "ambiguous"},
		"digest in old letters": {`"docker-manifest-digest"`, `"docker-manifeſt-digest":"x","docker-manifest-digest"`, "ambiguous"},
		"critical twice":        {`"type"`, `"criticaL":1},"optional":{},"Critical":{"type"`, "ambiguous"},
		"second value":          {`"OBS"}}`, `"OBS"}}{}`, "more than one value"},
		"cut off":               {`"OBS"}}`, `"OBS"}`, "json"},
		"deep":                  {`"OBS"`, strings.Repeat("[", 40) + strings.Repeat("]", 40), "levels"},
		"no object":             {payload, `[]`, "payload"},
		"null":                  {payload, `null`, "payload: type"},
		"empty":                 {payload, ``, "json"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := unsigned()
			said := strings.Replace(payload, c.old, c.new, 1)
			s.simple(t, s.Index, s.layer(said, by.sign(t, said)))
			got, err := s.verify(t, v)
			if c.cause == "" {
				require.NoError(t, err)
				assert.Equal(t, SimpleSigning, got.Format)
				return
			}
			require.ErrorIs(t, err, ErrWrong)
			require.ErrorContains(t, err, c.cause)
		})
	}
}

// The same for bundles.
func TestStatements(t *testing.T) {
	t.Parallel()
	by := newSigner(t)
	v := by.verifier(t)
	good := unsigned()
	statement := statementFor(good.Index)
	for name, c := range map[string]struct{ old, new, cause string }{
		"as it is":          {"", "", ""},
		"new key":           {`"predicate":`, `"later":1,"predicate":`, ""},
		"second subject":    {`"subject":[`, `"subject":[{"digest":{"sha256":"00"}},`, ""},
		"its name":          {`{"digest":{"sha`, `{"name":"registry.suse.com/caasp/v4/velum","digest":{"sha`, ""},
		"another name":      {`{"digest":{"sha`, `{"name":"registry.suse.com/caasp/v4/etcd","digest":{"sha`, "identity"},
		"a name of nothing": {`{"digest":{"sha`, `{"name":"velum","digest":{"sha`, "no repository"},
		"another digest":    {good.Index.Encoded(), good.Platform.Encoded(), "another digest"},
		"another algorithm": {`"sha256":`, `"sha512":`, "another digest"},
		"no subject":        {`{"digest":{"sha256":"` + good.Index.Encoded() + `"}}`, ``, "another digest"},
		"old statement":     {"Statement/v1", "Statement/v0.1", "statement: type"},
		"subject twice":     {`"subject"`, `"subject":[],"subject"`, "ambiguous"},
		"type twice":        {`"predicateType"`, `"PredicateType":"x","predicateType"`, "ambiguous"},
		"cut off":           {`{}}`, `{}`, "json"},
		"no object":         {statement, `[]`, "statement"},
		"an attestation":    {"cosign/sign", "cosign/scan", ErrUnsigned.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := unsigned()
			s.refer(t, s.Index, by.bundle(t, inTotoPayload, strings.Replace(statement, c.old, c.new, 1)))
			got, err := s.verify(t, v)
			if c.cause == "" {
				require.NoError(t, err)
				assert.Equal(t, Bundle, got.Format)
				return
			}
			require.Error(t, err)
			require.ErrorContains(t, err, c.cause)
		})
	}
}

func TestInvalidBundles(t *testing.T) {
	t.Parallel()
	by := newSigner(t)
	good := unsigned()
	whole := by.bundle(t, inTotoPayload, statementFor(good.Index))
	_, sig, _ := strings.Cut(whole, `"sig":"`)
	sig, _, _ = strings.Cut(sig, `"`)
	for name, c := range map[string]struct{ bundle, cause string }{
		"another payload type": {by.bundle(t, "text/plain", statementFor(good.Index)), `payload type "text/plain"`},
		"payload type changed": {strings.Replace(by.bundle(t, "text/plain", statementFor(good.Index)), "text/plain", inTotoPayload, 1), "another key"},
		"another version":      {strings.Replace(whole, "bundle.v0.3", "bundle.v0.4", 1), "media type"},
		"two signatures":       {strings.Replace(whole, `"signatures":[`, `"signatures":[{"sig":"`+sig+`"},`, 1), "2 signatures"},
		"no signature":         {strings.Replace(whole, `{"sig":"`+sig+`"}`, ``, 1), "0 signatures"},
		"both kinds":           {strings.Replace(whole, `{`, `{"messageSignature":{},`, 1), "either"},
		"neither":              {strings.Replace(whole, `dsseEnvelope`, `envelope`, 1), "either"},
		"null envelope":        {`{"mediaType":"` + bundleMediaType + `","dsseEnvelope":null}`, "either"},
		"empty message":        {`{"mediaType":"` + bundleMediaType + `","messageSignature":{}}`, "the manifest is not"},
		"signature cut off":    {strings.Replace(whole, sig, sig[:len(sig)-8], 1), "another key"},
		"half a quantum":       {strings.Replace(whole, sig, sig[:len(sig)-5], 1), "not base64"},
		"signature too long":   {strings.Replace(whole, sig, strings.Repeat("AAAA", 2000), 1), "too large"},
		"twice an envelope":    {strings.Replace(whole, `"mediaType"`, `"dsseenvelope":{},"mediaType"`, 1), "ambiguous"},
		"no JSON":              {"bundle", "json"},
		"empty":                {"", "json"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := unsigned()
			s.Manifests[s.Index] = onShelf{ocispec.MediaTypeImageIndex, "not what the digest says"}
			s.refer(t, s.Index, c.bundle)
			_, err := s.verify(t, by.verifier(t))
			require.ErrorIs(t, err, ErrWrong)
			require.ErrorContains(t, err, c.cause)
		})
	}
}

// The version of a 0.3 bundle may be a parameter of its media type, also in its layer and artifact.
func TestBundleWithVersionParameter(t *testing.T) {
	t.Parallel()
	by := newSigner(t)
	s := unsigned()
	bundle := by.bundle(t, inTotoPayload, statementFor(s.Index))
	m := s.manifest(t, []ocispec.Descriptor{
		s.blob(bundleVersionAside, strings.Replace(bundle, bundleMediaType, bundleVersionAside, 1)),
	})
	list, err := json.Marshal(ocispec.Index{Manifests: []ocispec.Descriptor{
		{MediaType: ocispec.MediaTypeImageManifest, Digest: m, ArtifactType: bundleVersionAside, Size: 1},
	}})
	require.NoError(t, err)
	s.References[s.Index] = string(list)
	got, err := s.verify(t, by.verifier(t))
	require.NoError(t, err)
	assert.Equal(t, Bundle, got.Format)
}

// A signature of the publisher's key over other bytes is not one of an image: a payload is not a manifest, and an
// envelope not a payload.
func TestFormatsAreNotInterchangeable(t *testing.T) {
	t.Parallel()
	by := newSigner(t)
	s := unsigned()
	statement := statementFor(s.Index)
	s.simple(t, s.Index, s.layer(statement, by.sign(t, statement)))
	_, err := s.verify(t, by.verifier(t))
	require.ErrorIs(t, err, ErrWrong)

	s = unsigned()
	plain := by.bundle(t, inTotoPayload, statement)
	_, sig, _ := strings.Cut(plain, `"sig":"`)
	sig, _, _ = strings.Cut(sig, `"`)
	s.refer(t, s.Index, strings.Replace(plain, sig, by.sign(t, statement), 1)) // without DSSE's prefix
	_, err = s.verify(t, by.verifier(t))
	require.ErrorIs(t, err, ErrWrong)
}

func TestLayers(t *testing.T) {
	t.Parallel()
	by := newSigner(t)
	s := unsigned()
	payload := payloadFor(s.Index, s.Repository)
	sig := by.sign(t, payload)
	good := s.layer(payload, sig)
	bad := s.layer(payload, newSigner(t).sign(t, payload))
	without := func(change func(*ocispec.Descriptor)) ocispec.Descriptor {
		desc := s.layer(payload, by.sign(t, payload))
		change(&desc)
		return desc
	}
	bare := without(func(desc *ocispec.Descriptor) { desc.Annotations = nil })
	cases := map[string]struct {
		layers []ocispec.Descriptor
		want   error
		cause  string
	}{
		"one":                     {[]ocispec.Descriptor{good}, nil, ""},
		"good behind bad":         {[]ocispec.Descriptor{bad, bare, bad, good, bad}, nil, ""},
		"64, the last known good": {append(slices.Repeat([]ocispec.Descriptor{bad}, 63), good), nil, ""},
		"65, the last known good": {append(slices.Repeat([]ocispec.Descriptor{bad}, 64), good), ErrWrong, "65 layers, at most 64"},
		"none":                    {nil, ErrUnsigned, ""},
		"of another kind":         {[]ocispec.Descriptor{without(func(desc *ocispec.Descriptor) { desc.MediaType = "text/plain" })}, ErrUnsigned, ""},
		"no annotation":           {[]ocispec.Descriptor{bare}, ErrWrong, "no annotation"},
		"empty signature":         {[]ocispec.Descriptor{s.layer(payload, "")}, ErrWrong, "another key"},
		"base64 cut off":          {[]ocispec.Descriptor{s.layer(payload, by.sign(t, payload)[:89])}, ErrWrong, "not base64"},
		"base64 in lines":         {[]ocispec.Descriptor{s.layer(payload, sig[:64]+"\n"+sig[64:]+"\r\n")}, nil, ""},
		"base64 with space":       {[]ocispec.Descriptor{s.layer(payload, sig+" ")}, ErrWrong, "not base64"},
		"huge signature":          {[]ocispec.Descriptor{s.layer(payload, strings.Repeat("A", 4097))}, ErrWrong, "too large"},
		"huge payload": {
			[]ocispec.Descriptor{without(func(desc *ocispec.Descriptor) { desc.Size = maxPayload + 1 })},
			ErrWrong, "payload too large: 65537 bytes, at most 65536",
		},
		"many bad": {slices.Repeat([]ocispec.Descriptor{bad}, 9), ErrWrong, "; and 4 more"},
	}
	for name, c := range cases {
		shelf := unsigned()
		shelf.Blobs = s.Blobs
		shelf.simple(t, shelf.Index, c.layers...)
		_, err := shelf.verify(t, by.verifier(t))
		require.ErrorIs(t, err, c.want, name)
		if c.want != nil {
			require.ErrorContains(t, err, c.cause, name)
			assert.Less(t, len(err.Error()), 2000, name)
		}
	}
}

func TestReferrersAreBounded(t *testing.T) {
	t.Parallel()
	by := newSigner(t)
	for n, want := range map[int]error{63: nil, 64: ErrWrong} {
		s := unsigned()
		var bundles []string
		for i := range n {
			bundles = append(bundles, by.bundle(t, inTotoPayload, statementFor(digest.FromString(fmt.Sprint(i)))))
		}
		s.refer(t, s.Index, append(bundles, by.bundle(t, inTotoPayload, statementFor(s.Index)))...)
		_, err := s.verify(t, by.verifier(t))
		require.ErrorIs(t, err, want, "%d and a good one", n)
	}
	s := unsigned()
	s.refer(t, s.Index, by.bundle(t, inTotoPayload, statementFor(s.Index))+strings.Repeat(" ", maxBundle))
	_, err := s.verify(t, by.verifier(t))
	require.ErrorIs(t, err, ErrWrong)
	require.ErrorContains(t, err, "at most 1048576")
}

// Failed requests mean neither "unsigned" nor "wrong". The successful ones may be enough.
func TestSourceErrors(t *testing.T) {
	t.Parallel()
	by := newSigner(t)
	v := by.verifier(t)
	signed := func(t *testing.T, platformToo bool) *shelf {
		s := unsigned()
		bad, payload := payloadFor(s.Platform, s.Repository), payloadFor(s.Index, s.Repository)
		s.simple(t, s.Index, s.layer(payload, by.sign(t, bad)))
		if platformToo {
			s.refer(t, s.Platform, by.bundle(t, inTotoPayload, statementFor(s.Platform)))
		}
		return s
	}
	for name, c := range map[string]struct {
		prefix string // of failing requests
		good   bool
		cause  string
	}{
		"all away":               {"", false, ".sig: "},
		"no tags":                {"manifest sha256-", false, "registry is away"},
		"no referrers":           {"referrers", false, "registry is away (sha256-"},
		"no blobs":               {"blob", false, "layer 0: "},
		"index away, good other": {"manifest sha256-" + digest.FromString("index").Encoded(), true, ""},
	} {
		s := signed(t, c.good)
		s.away = func(what string) error {
			if strings.HasPrefix(what, c.prefix) {
				return &release.SourceError{Repository: s.Repository, Host: "host", Err: errAway}
			}
			return nil
		}
		_, err := s.verify(t, v)
		if c.good {
			require.NoError(t, err, name)
			continue
		}
		require.ErrorIs(t, err, errAway, name)
		require.ErrorContains(t, err, c.cause, name)
		source, ok := errors.AsType[*release.SourceError](err)
		require.True(t, ok, name)
		assert.Equal(t, "host", source.Host)
		require.NotErrorIs(t, err, ErrWrong, name)
		require.NotErrorIs(t, err, ErrUnsigned, name)
	}
	s := signed(t, false)
	s.Blobs = nil
	_, err := s.verify(t, v)
	require.ErrorContains(t, err, "is missing")
	for _, not := range []error{release.ErrNotFound, ErrWrong, ErrUnsigned} {
		require.NotErrorIs(t, err, not, "a registry that is not whole is not one without the image")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = v.Verify(ctx, unsigned(), "registry.suse.com/a", s.Index, "")
	require.ErrorIs(t, err, context.Canceled)
}

func TestUnsigned(t *testing.T) {
	t.Parallel()
	s := unsigned()
	_, err := s.verify(t, with(t, "p256"))
	require.ErrorIs(t, err, ErrUnsigned)
	assert.EqualError(t, err, "signature: "+s.Repository+"@"+s.Index.String()+": not signed")
	hex, platform := s.Index.Encoded(), s.Platform.Encoded()
	assert.Equal(t, []string{
		"manifest sha256-" + hex + ".sig", "referrers sha256:" + hex, "manifest sha256-" + hex,
		"manifest sha256-" + platform + ".sig", "referrers sha256:" + platform, "manifest sha256-" + platform,
	}, s.asked)
	for _, d := range []digest.Digest{"", "sha256:00", digest.SHA512.FromString("x"), "md5:d41d8cd98f00b204e9800998ecf8427e", "../.."} {
		_, err := with(t, "p256").Verify(t.Context(), s, s.Repository, d, "")
		require.ErrorContains(t, err, "is not SHA-256")
	}
}

// An object that can be found in two ways is checked once.
func TestNoRequestIsRepeated(t *testing.T) {
	t.Parallel()
	by := newSigner(t)
	s := unsigned()
	_, err := by.verifier(t).Verify(t.Context(), s, s.Repository, s.Index, s.Index)
	require.ErrorIs(t, err, ErrUnsigned)
	assert.Len(t, s.asked, 3)

	s.asked = nil
	s.refer(t, s.Index, by.bundle(t, inTotoPayload, statementFor(s.Platform)))
	var list ocispec.Index
	require.NoError(t, json.Unmarshal([]byte(s.References[s.Index]), &list))
	list.SchemaVersion = 2
	body, err := json.Marshal(list)
	require.NoError(t, err)
	d := digest.FromBytes(body)
	s.Manifests[d] = onShelf{ocispec.MediaTypeImageIndex, string(body)}
	s.Tags[tagOf(s.Index)] = d
	_, err = by.verifier(t).Verify(t.Context(), s, s.Repository, s.Index, "")
	require.ErrorIs(t, err, ErrWrong)
	assert.Len(t, s.asked, 5, "three ways, one manifest, one blob")
	assert.Equal(t, 1, strings.Count(err.Error(), "bundle sha256:"))
}

// Invalid or ambiguous manifests.
func TestMalformedManifests(t *testing.T) {
	t.Parallel()
	by := newSigner(t)
	for _, body := range []string{"", "{}", "[]", `{"schemaVersion":2,"layers":[],"config":{},"manifests":[]}`} {
		for _, suffix := range []string{".sig", ""} {
			s := unsigned()
			d := digest.FromString(body)
			s.Manifests[d] = onShelf{ocispec.MediaTypeImageManifest, body}
			s.Tags[tagOf(s.Index)+suffix] = d
			_, err := s.verify(t, by.verifier(t))
			require.ErrorIs(t, err, ErrWrong, "%q%s", body, suffix)
		}
	}
	s := unsigned()
	s.refer(t, s.Index, "x")
	var index ocispec.Index
	require.NoError(t, json.Unmarshal([]byte(s.References[s.Index]), &index))
	for _, layers := range [][]ocispec.Descriptor{nil, {s.blob("text/plain", "x")}, {s.blob(bundleMediaType, "x"), s.blob(bundleMediaType, "y")}} {
		index.Manifests[0].Digest = s.manifest(t, layers)
		body, err := json.Marshal(index)
		require.NoError(t, err)
		s.References[s.Index] = string(body)
		_, err = s.verify(t, by.verifier(t))
		require.ErrorIs(t, err, ErrWrong)
		require.ErrorContains(t, err, "want one layer")
	}
}

// Texts from a source or a signature are shortened.
func TestErrorsAreOneLine(t *testing.T) {
	t.Parallel()
	long := errors.New(strings.Repeat("x\n", 1<<10))
	s, absent := &search{}, &search{}
	s.torn("bundle", long)
	assert.True(t, absent.absent("tag", long))
	s.refuse("simple signing", long)
	for _, text := range []string{s.sourceErr.Error(), absent.sourceErr.Error(), s.wrong[0]} {
		assert.Equal(t, outside.Line(text, outside.MaxError), text)
	}
}
