// SPDX-License-Identifier: Apache-2.0

package publish_test

import (
	"crypto"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/internal/catalog"
	"github.com/kubic-project/image-update-agent/internal/catalog/publish"
)

// put stores a manifest as somebody does who may push.
func (r *rig) put(tag string, body []byte) {
	r.t.Helper()
	require.NoError(r.t, r.client().PutManifest(r.t.Context(), r.repository(), tag, body))
}

func (r *rig) manifest(tag string) []byte { return r.manifestOf("catalog", tag) }

func (r *rig) manifestOf(repository, tag string) []byte {
	r.t.Helper()
	_, body, err := r.client().Manifest(r.t.Context(), r.host+"/"+repository, tag)
	require.NoError(r.t, err)
	return body
}

func (r *rig) tags() []string {
	r.t.Helper()
	list, err := r.client().Tags(r.t.Context(), r.repository())
	require.NoError(r.t, err)
	return list
}

// Who may push, but has no key, cannot have others sign what he wants.
func TestSignedChannelsTakeSignedOpsOnly(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	private, public := newKey(t)
	other, _ := newKey(t)
	p := r.publisher(func(o *publish.Options) { o.Keys = []*publish.Key{parsedKey(t, private)} })
	r.begin(p, "prod")
	r.lists(p, "prod", "", "velum:4.0.0-rev1-build1.1")
	v := r.read(p, "prod")
	assert.NotEmpty(t, v.SignedBy)

	_, err := r.add(r.publisher(nil), "prod", "velum:4.0.0-rev1-build1.1")
	assert.Equal(t, publish.KindSigned, kindOf(err), "%v", err)
	_, err = r.add(r.publisher(func(o *publish.Options) { o.Keys = []*publish.Key{parsedKey(t, other)} }), "prod", "velum:4.0.0-rev1-build1.1")
	assert.Equal(t, publish.KindUnsigned, kindOf(err), "%v", err)

	changes := []catalog.Change{{Image: r.host + "/velum", Release: catalog.Release{Tag: "evil", Digest: v.Digest}}}
	op := func(second string) catalog.Op {
		return catalog.Op{
			Tag: "op-prod-20261122T1300" + second + "Z-000000000000", Name: r.repository(), Channel: "prod",
			Do: catalog.ActionPromote, Changes: changes,
		}
	}
	unsigned, err := op("01").Encode()
	require.NoError(t, err)
	body, err := catalog.OpManifest(unsigned, "")
	require.NoError(t, err)
	r.put(op("01").Tag, body)
	body, err = catalog.OpManifest(unsigned, base64.StdEncoding.EncodeToString(make([]byte, 70)))
	require.NoError(t, err)
	r.put(op("02").Tag, body)
	for _, tag := range r.tags() { // what was asked for once is asked for again, later
		if strings.HasPrefix(tag, "op-prod-20261122T12") {
			r.put(op("03").Tag, r.manifest(tag))
		}
	}
	r.put(op("04").Tag, []byte(`{"schemaVersion":2}`))
	body, err = catalog.OpManifest([]byte("{"), "")
	require.NoError(t, err)
	r.put(op("05").Tag, body)

	got := r.does(p, "prod", publish.Settle, publish.How{})
	assert.False(t, got.Changed)
	assert.Len(t, got.Waiting, 5)
	assert.Equal(t, []string{"4.0.0-rev1-build1.1"}, r.listed(p, "prod", "velum"))
	findings, err := p.Verify(t.Context(), "prod", false)
	require.NoError(t, err)
	require.Len(t, findings, 5)
	assert.Contains(t, findings[0].Problem, "not signed")
	assert.Contains(t, findings[1].Problem, "another key")
	assert.Contains(t, findings[2].Problem, "it was published as")
	assert.Contains(t, findings[3].Problem, "artifact type")
	_, err = p.Prune(t.Context(), "prod", publish.Pruning{Keep: 10})
	require.NoError(t, err)
	assert.Contains(t, r.tags(), op("01").Tag, "what waits is left")

	// Who reads with the public key sees the same, and a channel that was pushed past the key is refused.
	reader := r.publisher(func(o *publish.Options) { o.All = [][]byte{public} })
	_, err = reader.Read(t.Context(), "prod")
	require.NoError(t, err)
	bare := r.publisher(func(o *publish.Options) { o.Repository = r.host + "/bare" })
	r.begin(bare, "prod")
	reader = r.publisher(func(o *publish.Options) {
		o.Repository, o.All = r.host+"/bare", [][]byte{public}
	})
	_, err = reader.Read(t.Context(), "prod")
	assert.Equal(t, publish.KindUnsigned, kindOf(err), "%v", err)
	adopt := r.publisher(func(o *publish.Options) {
		o.Repository, o.Keys, o.AcceptUnsigned = r.host+"/bare", []*publish.Key{parsedKey(t, private)}, true
	})
	r.does(adopt, "prod", publish.Refresh(time.Time{}), publish.How{})
	_, err = reader.Read(t.Context(), "prod")
	require.NoError(t, err)
}

// An op that was signed for one catalog is not folded in another one, whose key is the same.
func TestOpOfAnotherCatalogIsNotFolded(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	private, _ := newKey(t)
	of := func(repository string) *publish.Publisher {
		return r.publisher(func(o *publish.Options) {
			o.Repository, o.Keys = r.host+"/"+repository, []*publish.Key{parsedKey(t, private)}
		})
	}
	tests, catalog := of("tests"), of("catalog")
	r.begin(tests, "prod")
	r.begin(catalog, "prod")
	r.lists(tests, "prod", "", "velum:4.0.0-rev1-build1.1")
	v := r.read(tests, "prod")
	op := v.Merged[0]
	r.put(op, r.manifestOf("tests", op))
	for range 2 {
		got := r.does(catalog, "prod", publish.Settle, publish.How{})
		assert.Equal(t, []publish.Waiting{{Op: op, Why: "it is for " + r.host + "/tests"}}, got.Waiting)
		assert.Empty(t, r.listed(catalog, "prod", "velum"))
	}
}

// A channel that is served as another one is refused.
func TestStageServedAsProd(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.publisher(nil)
	r.begin(p, "stage")
	r.put("prod", r.manifest("stage"))
	_, err := p.Read(t.Context(), "prod")
	require.ErrorContains(t, err, "it was published as channel stage")
}

// The key of prod is on a machine of its own: what it has to sign is written out, and published
// with its signature.
func TestSignedElsewhere(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	private, public := newKey(t)
	trust := func(o *publish.Options) { o.All = [][]byte{public} }
	p := r.publisher(trust)
	sign := func(dir string) []byte { return signed(t, private, filepath.Join(dir, publish.PayloadFile)) }
	beside := t.TempDir()
	first, mine := filepath.Join(beside, "out"), filepath.Join(beside, "out.new", "mine")
	require.NoError(t, os.Mkdir(filepath.Dir(mine), 0o700))
	require.NoError(t, os.WriteFile(mine, nil, 0o600))
	got := r.does(p, "prod", publish.Refresh(time.Time{}), publish.How{New: true, Out: first})
	assert.FileExists(t, mine)
	file := filepath.Join(beside, "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err := p.Change(t.Context(), "prod", publish.Refresh(time.Time{}), publish.How{New: true, Out: file})
	require.ErrorContains(t, err, "not a directory")
	entries, err := os.ReadDir(beside)
	require.NoError(t, err)
	assert.Len(t, entries, 3, "nothing is left of what could not be written")
	assert.NotEmpty(t, got.Digest)
	_, err = p.Read(t.Context(), "prod")
	assert.Equal(t, publish.KindChannel, kindOf(err), "nothing is stored")
	_, err = p.PublishDir(t.Context(), first, [][]byte{[]byte(base64.StdEncoding.EncodeToString(make([]byte, 70)))}, false)
	assert.Equal(t, publish.KindUnsigned, kindOf(err), "%v", err)
	published, err := p.PublishDir(t.Context(), first, [][]byte{sign(first)}, false)
	require.NoError(t, err)
	assert.True(t, published.Changed)
	assert.Equal(t, got.Digest, published.Digest)
	v := r.read(p, "prod")
	assert.NotEmpty(t, v.SignedBy)
	encoded := base64.StdEncoding.EncodeToString(sign(first))
	wrapped := encoded[:64] + "\r\n" + encoded[64:] + "\r\n" // as openssl writes it on Windows
	again, err := p.PublishDir(t.Context(), first, [][]byte{[]byte(wrapped)}, false)
	require.NoError(t, err)
	assert.False(t, again.Changed)

	d := r.push("velum", "one", "4.0.0-rev1-build1.1")
	changes, err := p.Added(t.Context(), []publish.Wanted{r.image("velum:4.0.0-rev1-build1.1@" + d)}, amd64)
	require.NoError(t, err)
	add, other := filepath.Join(t.TempDir(), "out"), filepath.Join(t.TempDir(), "other")
	r.does(p, "prod", added(changes...), publish.How{Out: add})
	_, err = p.Change(t.Context(), "prod", added(changes...), publish.How{Out: add})
	assert.Equal(t, publish.KindInput, kindOf(err), "not over what is there")
	r.does(p, "prod", added(changes...), publish.How{Out: other})
	_, err = p.PublishDir(t.Context(), add, [][]byte{sign(add)}, false)
	require.NoError(t, err)
	assert.Equal(t, []string{"4.0.0-rev1-build1.1"}, r.listed(p, "prod", "velum"))
	if _, err = p.PublishDir(t.Context(), other, [][]byte{sign(other)}, false); err != nil { // equal where made in one second
		assert.Equal(t, publish.KindRaced, kindOf(err), "%v", err)
	}
	require.NoError(t, os.WriteFile(filepath.Join(first, publish.PayloadFile), []byte("{}"), 0o600))
	_, err = p.PublishDir(t.Context(), first, [][]byte{sign(first)}, false)
	assert.Equal(t, publish.KindInput, kindOf(err), "%v", err)
	r.isWell(p, "prod")
}

// A catalog that a mirror serves is still the one that was published.
func TestMirroredCatalogKeepsItsName(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	private, public := newKey(t)
	p := r.publisher(func(o *publish.Options) {
		o.Name = "registry.example.com/catalog"
		o.Keys = []*publish.Key{parsedKey(t, private)}
	})
	r.begin(p, "prod")
	_, err := r.publisher(func(o *publish.Options) { o.All = [][]byte{public} }).Read(t.Context(), "prod")
	assert.Equal(t, publish.KindUnsigned, kindOf(err), "%v", err)
	_, err = r.publisher(nil).Read(t.Context(), "prod")
	require.ErrorContains(t, err, "it was published as channel prod of registry.example.com/catalog")
	_, err = p.Read(t.Context(), "prod")
	require.NoError(t, err)
}

// signed signs a file as openssl does.
func signed(t *testing.T, private []byte, file string) []byte {
	t.Helper()
	payload, err := os.ReadFile(file)
	require.NoError(t, err)
	block, _ := pem.Decode(private)
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	require.NoError(t, err)
	sum := sha256.Sum256(payload)
	sig, err := key.(crypto.Signer).Sign(nil, sum[:], crypto.SHA256)
	require.NoError(t, err)
	return sig
}

// signedBytes signs bytes as openssl does, in base64.
func signedBytes(t *testing.T, private, data []byte) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "data")
	require.NoError(t, os.WriteFile(file, data, 0o600))
	return base64.StdEncoding.EncodeToString(signed(t, private, file))
}

// withLayer returns a manifest of signatures with another payload and signature.
func withLayer(t *testing.T, manifest []byte, layer catalog.BlobRef, signature string) []byte {
	t.Helper()
	var m ocispec.Manifest
	require.NoError(t, json.Unmarshal(manifest, &m))
	m.Layers = m.Layers[:1]
	m.Layers[0].Digest, m.Layers[0].Size = layer.Digest, layer.Size
	m.Layers[0].Annotations["dev.cosignproject.cosign/signature"] = signature
	out, err := json.Marshal(m)
	require.NoError(t, err)
	return out
}

// setPage has a version in a directory list a page.
func setPage(t *testing.T, dir string, m *catalog.Manifest, p catalog.Page) {
	t.Helper()
	page, err := p.Encode()
	require.NoError(t, err)
	sum := digest.FromBytes(page)
	m.SetPage(catalog.PageRef{Image: p.Image, Digest: sum, Size: int64(len(page))})
	require.NoError(t, os.WriteFile(filepath.Join(dir, "blobs", sum.Encoded()), page, 0o600))
}

// editDir edits the version in a directory, as whoever may write there can, and its payload.
func editDir(t *testing.T, dir string, edit func(m *catalog.Manifest)) {
	t.Helper()
	file := filepath.Join(dir, "manifest.json")
	body, err := os.ReadFile(file)
	require.NoError(t, err)
	m, err := catalog.DecodeManifest(body)
	require.NoError(t, err)
	name := m.Name
	edit(&m)
	body, d, err := m.Encode()
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, body, 0o600))
	payload, err := json.Marshal(map[string]any{
		"critical": map[string]any{
			"identity": map[string]string{"docker-reference": name},
			"image":    map[string]string{"docker-manifest-digest": d.String()},
			"type":     "cosign container image signature",
		},
		"optional": nil,
	})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, publish.PayloadFile), payload, 0o600))
}

// editOps edits the ops in a directory.
func editOps(t *testing.T, dir string, edit func(op *catalog.Op)) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "ops", "*"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		op, err := catalog.DecodeOp(filepath.Base(file), data)
		require.NoError(t, err)
		edit(&op)
		data, err = json.Marshal(op)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(file, data, 0o600))
	}
}

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
		r.does(p, "prod", publish.Refresh(time.Time{}), publish.How{})
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
	_, err = with(2, 1, 2).Change(t.Context(), "stage", publish.Refresh(time.Time{}), publish.How{})
	assert.Equal(t, publish.KindUnsigned, kindOf(err), "nothing is built upon it: %v", err)

	out := filepath.Join(t.TempDir(), "out")
	r.does(with(2), "prod", publish.Refresh(time.Time{}), publish.How{Out: out})
	sign := func(n int) []byte { return signed(t, private[n], filepath.Join(out, publish.PayloadFile)) }
	_, err = with(2).PublishDir(t.Context(), out, [][]byte{sign(0), sign(0)}, false)
	require.ErrorContains(t, err, "too few keys signed it: 1, want 2")
	_, err = with(2).PublishDir(t.Context(), out, [][]byte{sign(0), sign(1)}, false)
	require.NoError(t, err)
	v := r.read(with(2), "prod")
	assert.EqualValues(t, 2, v.Version)
}
