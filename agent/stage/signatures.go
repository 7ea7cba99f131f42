// SPDX-License-Identifier: Apache-2.0

package stage

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// Verifier verifies the signatures of releases.
type Verifier interface {
	// Verify returns the fingerprint of the key that signed a release. ErrUnsigned and ErrForged are results of a
	// verification; any other error means that there was none.
	Verify(ctx context.Context, r release.Release) (key string, err error)
	// Keys returns the fingerprints of the trusted keys, sorted. When they change, refused releases are verified again
	// at once.
	Keys(ctx context.Context) ([]string, error)
}

// SignatureChecker verifies releases and stores the results in the record.
type SignatureChecker struct {
	Verifier Verifier // nil: signatures are not verified
	Policy   policy.Policy
	Records  *record.Store
	Log      *slog.Logger
	Now      func() time.Time
	Jitter   func() float64
	Progress *status.Reporter
}

// Verify verifies a release before its layers are pulled. It returns ErrHeld if the policy requires a signature and
// there is none.
func (s *SignatureChecker) Verify(ctx context.Context, r release.Release) error {
	rec := &s.Records.Record
	pol, key := s.Policy.RuleFor(r.Repository).Signatures, release.Key(r.Repository, r.Digest)
	if pol == "" || pol == policy.SignaturesOff || s.Verifier == nil || rec.Signed[key] != "" {
		return nil
	}
	stop := s.Progress.Heartbeat()
	by, err := s.Verifier.Verify(ctx, r)
	stop()
	switch {
	case err == nil:
		rec.Signed.Set(key, by)
		rec.Unsigned.Delete(key)
		return s.Records.Save(ctx)
	case ctx.Err() != nil:
		return err
	}
	tries := rec.Unsigned[key].Tries + 1
	rec.Unsigned.Set(key, record.Unsigned{
		Reason: err.Error(), Forged: errors.Is(err, release.ErrForged), Keys: s.keys(ctx),
		Tries: tries, RetryAt: s.Now().Add(policy.Backoff(tries, s.Jitter())),
	})
	s.Log.Warn("not verified", "release", key, "policy", string(pol), "err", err)
	if pol == policy.SignaturesWarn {
		return nil
	}
	return fmt.Errorf("%w: %w", release.ErrHeld, err)
}

// keys returns the fingerprints of the trusted keys, separated by spaces.
func (s *SignatureChecker) keys(ctx context.Context) string {
	keys, err := s.Verifier.Keys(ctx)
	if err != nil {
		return "" // Verify reports the error
	}
	return strings.Join(keys, " ")
}

// DropRemovedKeys drops the signatures of keys that are no longer trusted: all of them if no key can be read.
func (s *SignatureChecker) DropRemovedKeys(ctx context.Context) {
	signed := s.Records.Record.Signed
	if s.Verifier == nil || len(signed) == 0 {
		return
	}
	trusted := strings.Fields(s.keys(ctx))
	for release, by := range signed {
		if !slices.Contains(trusted, by) {
			s.Log.Warn("signature key was removed, verifying the signature again", "release", release, "key", by)
			signed.Delete(release)
		}
	}
}

// VerifyAgain verifies the releases that failed before: after a back-off, when the keys have
// changed, and atOnce on request. Build services sign late, and a mirror may have served a wrong
// signature.
func (s *SignatureChecker) VerifyAgain(ctx context.Context, atOnce bool) {
	rec := &s.Records.Record
	if s.Verifier == nil || len(rec.Unsigned) == 0 {
		return
	}
	keys, now := s.keys(ctx), s.Now()
	for key, u := range rec.Unsigned {
		if atOnce || keys != "" && u.Keys != keys {
			u.Tries, u.RetryAt = 0, now
			rec.Unsigned.Set(key, u)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(rec.Unsigned)) {
		wait := rec.Unsigned[key].RetryAt.Sub(now)
		rel, known := rec.Releases[key]
		if !known || ctx.Err() != nil || wait > 0 && wait <= policy.MaxBackoff { // a longer wait comes from a wrong clock
			continue
		}
		if err := s.Verify(ctx, rel); err == nil && rec.Signed[key] != "" {
			s.Log.Info("verified", "release", key)
		}
	}
}
