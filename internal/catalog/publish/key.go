// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"bytes"
	"context"
	"crypto"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/sigstore/sigstore/pkg/cryptoutils"
	sigstore "github.com/sigstore/sigstore/pkg/signature"
)

// Key signs catalogs.
type Key struct {
	signer sigstore.Signer
	public []byte // PEM
}

// ParseKey reads a private key in PEM, also one that cosign has encrypted. password is called
// where the key needs one.
func ParseKey(data []byte, password func() ([]byte, error)) (*Key, error) {
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

// payloadOf returns what is to be signed for a manifest, as cosign writes it.
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

// putSignature stores a payload with its signature under the tag of the signed digest, as
// cosign does.
func (p *Publisher) putSignature(ctx context.Context, tag string, payload []byte, signature string) error {
	d := digest.FromBytes(payload)
	config, err := json.Marshal(map[string]any{
		"architecture": "", "os": "", "created": "0001-01-01T00:00:00Z", "config": map[string]any{},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []digest.Digest{d}},
	})
	if err != nil {
		return err
	}
	layer, err := p.client.PutBlob(ctx, p.repository, payload)
	if err != nil {
		return err
	}
	configRef, err := p.client.PutBlob(ctx, p.repository, config)
	if err != nil {
		return err
	}
	body, err := json.Marshal(ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest,
		Config: ocispec.Descriptor{
			MediaType: ocispec.MediaTypeImageConfig, Digest: configRef.Digest, Size: configRef.Size,
		},
		Layers: []ocispec.Descriptor{{
			MediaType: simpleMediaType, Digest: layer.Digest, Size: layer.Size,
			Annotations: map[string]string{simpleAnnotation: signature},
		}},
	})
	if err != nil {
		return err
	}
	return p.client.PutManifest(ctx, p.repository, tag, body)
}

// errNoSignature: a file holds no signature.
var errNoSignature = errors.New("neither a signature in base64 nor one in bytes")

// parseSignature reads the signature of a file: base64 as cosign writes it, or bytes as openssl
// does. It returns base64.
func parseSignature(data []byte) (string, error) {
	const most = 2 << 10
	text := bytes.TrimSpace(data)
	if sig, err := base64.StdEncoding.Strict().DecodeString(string(text)); err == nil && len(sig) > 0 && len(sig) <= most {
		return string(text), nil
	}
	if len(data) < 32 || len(data) > most {
		return "", errNoSignature
	}
	return base64.StdEncoding.EncodeToString(data), nil
}
