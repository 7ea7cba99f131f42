// SPDX-License-Identifier: Apache-2.0

package signature

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/sigstore/sigstore/pkg/signature"
	"github.com/sigstore/sigstore/pkg/signature/dsse"

	"github.com/kubic-project/image-update-agent/internal/base/nodefile"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
)

// key is a public key with verifiers for its algorithms.
type key struct {
	fingerprint string
	kind        string // for people
	verifiers   []signature.Verifier
}

// newKey parses a SubjectPublicKeyInfo (RFC 5280, 4.1.2.7).
func newKey(der []byte) (key, error) {
	public, err := x509.ParsePKIXPublicKey(der)
	if err != nil {
		return key{}, err
	}
	verifiers, err := verifiersOf(public)
	if err != nil {
		return key{}, err
	}
	sum := sha256.Sum256(der)
	return key{fingerprint: "sha256:" + hex.EncodeToString(sum[:]), kind: kindOf(public), verifiers: verifiers}, nil
}

// verifiersOf returns sigstore's default verifier for a key (RSA of 2048, 3072 or 4096 bits with PKCS #1 v1.5 and
// SHA-256, never PSS; ECDSA with the hash of its curve's length; Ed25519), and verifiers for cosign's other algorithms:
// ECDSA of any curve with SHA-256, and Ed25519ph for its logs.
func verifiersOf(public crypto.PublicKey) ([]signature.Verifier, error) {
	standard, err := signature.LoadDefaultVerifier(public)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", kindOf(public), err)
	}
	verifiers := []signature.Verifier{standard}
	var other signature.Verifier
	switch k := public.(type) {
	case *ecdsa.PublicKey:
		if k.Curve == elliptic.P256() {
			return verifiers, nil
		}
		other, err = signature.LoadECDSAVerifier(k, crypto.SHA256)
	case ed25519.PublicKey:
		other, err = signature.LoadED25519phVerifier(k)
	default:
		return verifiers, nil
	}
	return append(verifiers, other), err
}

func kindOf(public crypto.PublicKey) string {
	switch k := public.(type) {
	case *rsa.PublicKey:
		return fmt.Sprintf("RSA %d", k.N.BitLen())
	case *ecdsa.PublicKey:
		return "ECDSA " + k.Curve.Params().Name
	case ed25519.PublicKey:
		return "Ed25519"
	}
	return fmt.Sprintf("%T", public)
}

// ring are the trusted keys.
type ring []key

// fingerprints returns the fingerprints of the different keys, sorted.
func (r ring) fingerprints() []string {
	var out []string
	for _, k := range r {
		out = append(out, k.fingerprint)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

var errNoKeyFits = errors.New("made with another key, or altered")

// verify returns the key that signed a message.
func (r ring) verify(message, sig []byte) (key, error) {
	for _, k := range r {
		for _, v := range k.verifiers {
			if v.VerifySignature(bytes.NewReader(sig), bytes.NewReader(message)) == nil {
				return k, nil
			}
		}
	}
	return key{}, errNoKeyFits
}

// verifyEnvelope returns the key that signed a DSSE envelope of a payload type, and the
// verified payload.
func (r ring) verifyEnvelope(payloadType string, payload, sig []byte) (key, []byte, error) {
	// The envelope is encoded again, because the library accepts non-strict base64.
	envelope, err := json.Marshal(map[string]any{
		"payloadType": payloadType,
		"payload":     base64.StdEncoding.EncodeToString(payload),
		"signatures":  []map[string]string{{"sig": base64.StdEncoding.EncodeToString(sig)}},
	})
	if err != nil {
		return key{}, nil, err
	}
	for _, k := range r {
		for _, v := range k.verifiers {
			var verified []byte
			v := dsse.WrapVerifier(v, dsse.WithExpectedPayloadType(payloadType), dsse.WithDecodedPayload(&verified))
			if v.VerifySignature(bytes.NewReader(envelope), nil) == nil {
				return k, verified, nil
			}
		}
	}
	return key{}, nil, errNoKeyFits
}

// decode decodes strict base64: Go's decoder accepts bits in the padding and line ends.
func decode(encoded string, limit int) ([]byte, error) {
	if len(encoded) > limit {
		return nil, fmt.Errorf("too large: %d characters, at most %d", len(encoded), limit)
	}
	data, err := base64.StdEncoding.Strict().DecodeString(encoded)
	if err != nil || base64.StdEncoding.EncodedLen(len(data)) != len(encoded) {
		return nil, errors.New("not base64")
	}
	return data, nil
}

// keys caches the public keys of directories until a file changes.
type keys struct {
	dirs  []string
	given ring // instead of dirs
	log   *slog.Logger

	require int // how many different ones there must be

	mu    sync.Mutex
	stamp string
	ring  ring
}

// current returns the keys, read again if a file changed; ErrNoKeys or ErrFewKeys if it cannot verify with
// them.
func (k *keys) current(ctx context.Context) (ring, error) {
	if k.given != nil {
		return k.given, nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if stamp := stampOf(k.dirs); stamp != k.stamp {
		k.ring = k.read(ctx)
		k.stamp = stamp
	}
	if len(k.ring) == 0 {
		return nil, fmt.Errorf("%w: no valid *.pem file in %s", ErrNoKeys, strings.Join(k.dirs, ", "))
	}
	if n := len(k.ring.fingerprints()); n < k.require {
		return nil, fmt.Errorf("%w: %d in %s, want %d", ErrFewKeys, n, strings.Join(k.dirs, ", "), k.require)
	}
	return k.ring, nil
}

// stampOf returns a stamp that changes with the files. It includes errors, so that each is logged once.
func stampOf(dirs []string) string {
	var stamps strings.Builder
	for _, dir := range dirs {
		entries, err := os.ReadDir(dir)
		fmt.Fprintf(&stamps, "%s %v\n", dir, err)
		for _, entry := range entries {
			name := filepath.Join(dir, entry.Name())
			if filepath.Ext(name) == ".pem" {
				stamp := ""
				info, err := os.Stat(name)
				if err == nil {
					stamp = nodefile.Stamp(info)
				}
				fmt.Fprintf(&stamps, "%s %s %v\n", name, stamp, err)
			}
		}
	}
	return stamps.String()
}

// read reads the keys. It logs and skips broken files.
func (k *keys) read(ctx context.Context) ring {
	var found ring
	for _, f := range KeyFiles(k.dirs) {
		switch {
		case f.Err == nil:
			k.log.InfoContext(ctx, "signature key loaded", "file", f.Path, "kind", f.key.kind, "key", f.key.fingerprint)
			found = append(found, f.key)
		case f.IsDir:
			k.log.WarnContext(ctx, "cannot read a directory of signature keys", "error", f.Err)
		default:
			k.log.WarnContext(ctx, "signature key ignored", "file", f.Path, "error", f.Err)
		}
	}
	return found
}

// KeyFile is a file with a public key, or an unreadable directory of such files.
type KeyFile struct {
	Path  string
	IsDir bool
	Err   error // why it is ignored

	key key
}

// String names the file with the kind and the fingerprint of its key.
func (f KeyFile) String() string { return f.Path + " (" + f.key.kind + ", " + f.key.fingerprint + ")" }

// KeyFiles reads the keys in directories, including ignored ones.
func KeyFiles(dirs []string) []KeyFile {
	var out []KeyFile
	count := 0
	for _, dir := range dirs {
		entries, err := os.ReadDir(dir)
		if err != nil {
			out = append(out, KeyFile{Path: dir, IsDir: true, Err: err})
		}
		for _, entry := range entries {
			f := KeyFile{Path: filepath.Join(dir, entry.Name())}
			if filepath.Ext(f.Path) != ".pem" {
				continue
			}
			if count++; count > maxKeyFiles {
				f.Err = fmt.Errorf("too many files: only the first %d are used", maxKeyFiles)
				return append(out, f)
			}
			data, err := nodefile.Read(f.Path, maxKeyFile)
			if err == nil {
				f.key, err = parseKey(data)
			}
			f.Err = err
			out = append(out, f)
		}
	}
	return out
}

// parseKey parses the public key of a PEM file. A second one would be ambiguous.
func parseKey(data []byte) (key, error) {
	block, rest := pem.Decode(data)
	if block == nil {
		return key{}, errors.New("no PEM")
	}
	if block.Type != "PUBLIC KEY" {
		return key{}, fmt.Errorf("PEM of %q, not of %q", outside.Text(block.Type), "PUBLIC KEY")
	}
	if second, _ := pem.Decode(rest); second != nil {
		return key{}, errors.New("more than one PEM block")
	}
	return newKey(block.Bytes)
}
