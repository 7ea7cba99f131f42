// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

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

// own has the catalog's signatures fetched from its repository, whatever name it is known by.
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
