// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"time"
)

// Signatures says what a repository's signatures are good for.
type Signatures string

// The policies of signatures. The empty one is SignaturesOff.
const (
	SignaturesOff     Signatures = "off"     // nobody looks
	SignaturesWarn    Signatures = "warn"    // what is not signed well is noted, and staged
	SignaturesRequire Signatures = "require" // it is not staged
)

var (
	// ErrUnsigned: nobody has signed the release, yet. Build services sign after
	// they have published the tags.
	ErrUnsigned = errors.New("not signed")
	// ErrForged: there are signatures, and none of them is good.
	ErrForged = errors.New("no valid signature")
)

// Verifier finds out who has made a release.
type Verifier interface {
	// Verify gives the fingerprint of the key that signed a release. The error is
	// ErrUnsigned or ErrForged; every other one is no answer.
	Verify(ctx context.Context, r Release) (key string, err error)
	// Keys are the fingerprints that count now, sorted: what was refused under
	// others is looked at again at once.
	Keys(ctx context.Context) ([]string, error)
}

// Unproved is a release without a good signature.
type Unproved struct {
	Reason string `json:"reason"`
	Forged bool   `json:"forged,omitempty"` // there were signatures, and none was good
	Keys   string `json:"keys,omitempty"`
	Tries  int    `json:"tries"`
	// RetryAt is when it is looked for again: it may be signed by then.
	RetryAt time.Time `json:"retryAt,omitzero"`
}
