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
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/sigstore/sigstore/pkg/cryptoutils"
	sigstore "github.com/sigstore/sigstore/pkg/signature"

	"github.com/kubic-project/image-update-agent/internal/registry/signature"
)

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

// ParseKey reads a private key in PEM, also one that cosign has encrypted. password is called
// where the key needs one.
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
