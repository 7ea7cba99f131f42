// SPDX-License-Identifier: Apache-2.0

package signature

import (
	"context"
	"fmt"
	"log/slog"
)

// WithKeys returns a verifier for these public keys, each in PEM, in place of directories.
func WithKeys(pems ...[]byte) (*Verifier, error) {
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
	log := slog.New(slog.DiscardHandler)
	return &Verifier{keys: keys{given: given, log: log}, log: log}, nil
}

// VerifyBytes verifies a signature in base64 over exactly these bytes. It returns the
// fingerprint of the key, or ErrWrong. The caller has to see to it that the bytes say what they
// are: whoever signs several kinds of content could else have one taken for another.
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
