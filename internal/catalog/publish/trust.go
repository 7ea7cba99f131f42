// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"bytes"
	"context"
	"crypto"
	"crypto/elliptic"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/sigstore/sigstore/pkg/cryptoutils"
	sigstore "github.com/sigstore/sigstore/pkg/signature"

	"github.com/kubic-project/image-update-agent/internal/base/nodefile"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
	"github.com/kubic-project/image-update-agent/internal/catalog"
	"github.com/kubic-project/image-update-agent/internal/registry/signature"
)

// Trust are the public keys of channels, in PEM. A version or an op counts in a channel only if that channel's own keys
// have signed it. The keys of another channel say what that one offers, and nothing else.
type Trust struct {
	All [][]byte            // of each channel that Of does not name
	Of  map[string][][]byte // by channel
	// Require is how many keys of the channel must have signed; 0: one.
	Require int
	// Accept are the tags of ops that count although fewer keys have signed them; one has.
	Accept []string
}

// own returns the keys of a channel.
func (t Trust) own(channel string) [][]byte {
	if keys, named := t.Of[channel]; named {
		return keys
	}
	return t.All
}

// keys are those of one channel. The zero value is none: everything counts.
type keys struct {
	one, enough *signature.Verifier
	require     int
	accept      []string
}

// newKeys returns the keys of a channel, of which so many must have signed.
func newKeys(require int, accept []string, pems ...[]byte) (k keys, err error) {
	if len(pems) == 0 {
		return keys{}, nil
	}
	k = keys{require: max(require, 1), accept: accept}
	if k.one, err = signature.WithKeys(1, pems...); err == nil {
		k.enough, err = signature.WithKeys(k.require, pems...)
	}
	return k, err
}

// areThere reports whether signatures can be checked.
func (k keys) areThere() bool { return k.one != nil }

// version returns the key that signed a version, the first one if several must have.
func (k keys) version(ctx context.Context, r *reader, d digest.Digest) (string, error) {
	verdict, err := k.enough.Verify(ctx, own{r.registry, r.repository}, r.name, d, "")
	if err != nil {
		return "", err
	}
	return verdict.Keys[0], nil
}

// signers returns the different keys that signed something.
func (k keys) signers(ctx context.Context, data []byte, signatures []string) ([]string, error) {
	var out []string
	var wrong error
	for _, encoded := range signatures {
		key, err := k.one.VerifyBytes(ctx, data, encoded)
		switch {
		case err != nil:
			wrong = err
		case !slices.Contains(out, key):
			out = append(out, key)
		}
	}
	if len(out) == 0 && wrong != nil {
		return nil, wrong
	}
	return out, nil
}

// errNotSigned: an op has no signature. errTooFew: a key of the channel has signed it, and more must.
var (
	errNotSigned = errors.New("not signed")
	errTooFew    = errors.New("signed by too few keys")
)

// op decodes an op, and returns the keys that signed it. Without enough of them it does not count.
func (k keys) op(ctx context.Context, tag, name string, body []byte) (catalog.Op, error) {
	data, signatures, err := catalog.ReadOpManifest(body)
	if err != nil {
		return catalog.Op{}, err
	}
	var by []string
	if k.areThere() {
		if by, err = k.signers(ctx, data, signatures); err == nil && len(by) == 0 {
			err = errNotSigned
		}
		if err != nil {
			return catalog.Op{}, err
		}
	}
	op, err := catalog.DecodeOp(tag, data)
	op.SignedBy = by
	switch {
	case err != nil:
	case op.Name != name:
		err = fmt.Errorf("it is for %s", op.Name)
	case len(by) < k.require && !slices.Contains(k.accept, tag):
		err = fmt.Errorf("%w: %d, want %d", errTooFew, len(by), k.require)
	}
	return op, err
}

// own fetches the catalog's signatures from its repository, whatever name it is known by.
type own struct {
	Registry
	repository string
}

func (o own) Manifest(ctx context.Context, _, tagOrDigest string) (mediaType string, body []byte, err error) {
	return o.Registry.Manifest(ctx, o.repository, tagOrDigest)
}

func (o own) Blob(ctx context.Context, _ string, desc ocispec.Descriptor) ([]byte, error) {
	return o.Registry.Blob(ctx, o.repository, desc)
}

// Key signs catalogs.
type Key struct {
	signer sigstore.Signer
	public []byte // PEM
}

// CheckPublic checks that PEM holds a public key.
func CheckPublic(data []byte) error {
	if block, _ := pem.Decode(data); block != nil && strings.Contains(block.Type, "PRIVATE") {
		return errors.New("a private key: want the public one")
	}
	_, err := signature.WithKeys(1, data)
	return err
}

// ParseKey reads a private key in PEM, also one that cosign has encrypted. password is called if the key needs one.
func ParseKey(data []byte, password func() ([]byte, error)) (*Key, error) {
	if block, _ := pem.Decode(data); block != nil && strings.Contains(block.Type, "PUBLIC") {
		return nil, errors.New("a public key: want the private one")
	}
	private, err := cryptoutils.UnmarshalPEMToPrivateKey(data, func(bool) ([]byte, error) { return password() })
	if err != nil {
		return nil, fmt.Errorf("private key: %w", err)
	}
	signer, err := sigstore.LoadSigner(private, crypto.SHA256)
	if err != nil {
		return nil, fmt.Errorf("private key: %w", err)
	}
	public, err := signer.PublicKey()
	if err != nil {
		return nil, fmt.Errorf("private key: %w", err)
	}
	text, err := cryptoutils.MarshalPublicKeyToPEM(public)
	if err != nil {
		return nil, fmt.Errorf("private key: %w", err)
	}
	return &Key{signer: signer, public: text}, nil
}

// NewKey makes a key pair, ECDSA on P-256, in PEM. With a password, the private key is encrypted as cosign does.
func NewKey(password []byte) (private, public []byte, err error) {
	pass := cryptoutils.SkipPassword
	if len(password) > 0 {
		pass = cryptoutils.StaticPasswordFunc(password)
	}
	return cryptoutils.GeneratePEMEncodedECDSAKeyPair(elliptic.P256(), pass)
}

// sign returns the signature of a message in base64.
func (k *Key) sign(message []byte) (string, error) {
	sig, err := k.signer.SignMessage(bytes.NewReader(message))
	if err != nil {
		return "", fmt.Errorf("signing: %w", err)
	}
	return base64.StdEncoding.EncodeToString(sig), nil
}

// The names of simple signing in cosign's specification.
const (
	simpleMediaType  = "application/vnd.dev.cosign.simplesigning.v1+json"
	simpleAnnotation = "dev.cosignproject.cosign/signature"
	simpleType       = "cosign container image signature"
)

// payloadOf returns the payload of cosign that is signed for a manifest.
func payloadOf(repository string, d digest.Digest) ([]byte, error) {
	return json.Marshal(map[string]any{
		"critical": map[string]any{
			"identity": map[string]string{"docker-reference": repository},
			"image":    map[string]string{"docker-manifest-digest": d.String()},
			"type":     simpleType,
		},
		"optional": nil,
	})
}

// putSignature stores a payload with its signatures under the tag of the signed digest, as
// cosign does.
func (p *Publisher) putSignature(ctx context.Context, tag string, payload []byte, sigs ...string) error {
	d := digest.FromBytes(payload)
	config, err := json.Marshal(map[string]any{
		"architecture": "", "os": "", "created": "0001-01-01T00:00:00Z", "config": map[string]any{},
		"rootfs": map[string]any{"type": "layers", "diff_ids": slices.Repeat([]digest.Digest{d}, len(sigs))},
	})
	if err != nil {
		return err
	}
	layer, err := p.registry.PutBlob(ctx, p.repository, payload)
	if err != nil {
		return err
	}
	configRef, err := p.registry.PutBlob(ctx, p.repository, config)
	if err != nil {
		return err
	}
	var layers []ocispec.Descriptor
	for _, sig := range sigs {
		layers = append(layers, ocispec.Descriptor{
			MediaType: simpleMediaType, Digest: layer.Digest, Size: layer.Size,
			Annotations: map[string]string{simpleAnnotation: sig},
		})
	}
	body, err := json.Marshal(ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest,
		Config: ocispec.Descriptor{
			MediaType: ocispec.MediaTypeImageConfig, Digest: configRef.Digest, Size: configRef.Size,
		},
		Layers: layers,
	})
	if err != nil {
		return err
	}
	return p.registry.PutManifest(ctx, p.repository, tag, body)
}

// errNoSignature: a file holds no signature.
var errNoSignature = errors.New("neither a signature in base64 nor one in bytes")

// parseSignature reads the signature of a file: base64 as cosign writes it, or bytes as openssl
// does. It returns base64.
func parseSignature(data []byte) (string, error) {
	const most = 2 << 10
	text := bytes.TrimSpace(data)
	if sig, err := base64.StdEncoding.Strict().DecodeString(string(text)); err == nil && len(sig) > 0 && len(sig) <= most {
		return base64.StdEncoding.EncodeToString(sig), nil // without line ends
	}
	if len(data) < 32 || len(data) > most {
		return "", errNoSignature
	}
	return base64.StdEncoding.EncodeToString(data), nil
}

const (
	maxState = 1 << 20 // bytes of the file of versions
	// lockTime is how long another process may have the file.
	lockTime = 30 * time.Second
)

// stateFile remembers the highest version of each channel that was read, so that a registry cannot hide it later. The
// zero value remembers nothing.
type stateFile struct{ path string }

// seen is the content of the file: catalog, channel, version.
type seen struct {
	Catalogs map[string]map[string]seenVersion `json:"catalogs"`
}

type seenVersion struct {
	Version uint64        `json:"version"`
	Digest  digest.Digest `json:"digest"`
}

// note refuses a version below the highest one, and notes a higher one if that counts: with keys, one that they signed.
// No other process changes the file at the same time.
func (f stateFile) note(ctx context.Context, name, channel string, v Version, counts bool) error {
	if f.path == "" {
		return nil
	}
	lock := filepath.Join(filepath.Dir(f.path), "."+filepath.Base(f.path)+".lock")
	unlock, err := nodefile.Lock(ctx, lock, lockTime)
	if err != nil {
		return fmt.Errorf("state: %w", err)
	}
	defer unlock()
	all, err := f.load()
	if err != nil {
		return err
	}
	switch known := all.Catalogs[name][channel]; {
	case known.Version > v.Version:
		return refuse(KindOlder, channel, "the channel went back from %d to %d: %s has version %d",
			known.Version, v.Version, f.path, known.Version)
	case known.Version == v.Version, !counts:
		return nil
	}
	if all.Catalogs == nil {
		all.Catalogs = map[string]map[string]seenVersion{}
	}
	if all.Catalogs[name] == nil {
		all.Catalogs[name] = map[string]seenVersion{}
	}
	all.Catalogs[name][channel] = seenVersion{v.Version, v.Digest}
	return f.save(all)
}

// load reads the file; one that is not there is empty.
func (f stateFile) load() (seen, error) {
	data, err := ReadFile(f.path, maxState)
	if errors.Is(err, fs.ErrNotExist) {
		return seen{}, nil
	}
	if err != nil {
		return seen{}, fmt.Errorf("state: %w", err)
	}
	var all seen
	if err := json.Unmarshal(data, &all); err != nil {
		return seen{}, &Error{
			Kind: KindInput, Object: f.path, Text: "not a file of versions", Err: outside.Error(err),
		}
	}
	return all, nil
}

// save writes the file as a whole, for the same users.
func (f stateFile) save(all seen) error {
	text, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return err
	}
	next, err := os.CreateTemp(filepath.Dir(f.path), "."+filepath.Base(f.path)+".")
	if err != nil {
		return fmt.Errorf("state: %w", err)
	}
	defer func() { _ = os.Remove(next.Name()) }() // gone when it was renamed
	like := nodefile.File{Mode: 0o644, UID: -1, GID: -1}
	if old, err := nodefile.Access(f.path); err == nil {
		like = old
	}
	if next.Chown(like.UID, like.GID) != nil {
		like = like.ForThisUser()
	}
	_, err = next.Write(append(text, '\n'))
	err = errors.Join(err, next.Chmod(like.Mode), next.Sync(), next.Close())
	if err == nil {
		err = os.Rename(next.Name(), f.path)
	}
	if err != nil {
		return fmt.Errorf("state: %w", err)
	}
	return nil
}
