// SPDX-License-Identifier: Apache-2.0

package signature

import (
	"context"
	"fmt"
	"log/slog"
)

// WithKeys returns a verifier for these public keys, each in PEM, instead of directories. require is how many of them
// must have signed; 0: one.
func WithKeys(require int, pems ...[]byte) (*Verifier, error) {
	var given ring
	for _, data := range pems {
		k, err := parseKey(data)
		if err != nil {
			return nil, fmt.Errorf("signature: public key: %w", err)
		}
		given = append(given, k)
	}
	if len(given) == 0 {
		return nil, fmt.Errorf("signature: %w", ErrNoKeys)
	}
	if n := len(given.fingerprints()); n < require {
		return nil, fmt.Errorf("signature: %w: %d, want %d", ErrFewKeys, n, require)
	}
	log := slog.New(slog.DiscardHandler)
	return &Verifier{keys: keys{given: given, require: max(require, 1), log: log}, log: log}, nil
}

// VerifyBytes verifies a base64 signature of exactly these bytes. It returns the fingerprint of the key, or ErrWrong.
// The bytes must identify their kind of content, and the caller must check it: otherwise one kind could be mistaken for
// another signed by the same key.
func (v *Verifier) VerifyBytes(ctx context.Context, message []byte, encoded string) (string, error) {
	ring, err := v.keys.current(ctx)
	if err != nil {
		return "", fmt.Errorf("signature: %w", err)
	}
	sig, err := decode(encoded, maxEncoded)
	if err != nil {
		return "", fmt.Errorf("signature: %w: %w", ErrWrong, err)
	}
	by, err := ring.verify(message, sig)
	if err != nil {
		return "", fmt.Errorf("signature: %w: %w", ErrWrong, err)
	}
	return by.fingerprint, nil
}
