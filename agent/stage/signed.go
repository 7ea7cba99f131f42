// SPDX-License-Identifier: Apache-2.0

package stage

import (
	"context"

	"github.com/kubic-project/image-update-agent/agent/release"
)

// Verifier finds out who has made a release.
type Verifier interface {
	// Verify gives the fingerprint of the key that signed a release. The error is
	// ErrUnsigned or ErrForged; every other one is no answer.
	Verify(ctx context.Context, r release.Release) (key string, err error)
	// Keys are the fingerprints that count now, sorted: what was refused under
	// others is looked at again at once.
	Keys(ctx context.Context) ([]string, error)
}
