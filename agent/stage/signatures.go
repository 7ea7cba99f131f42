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

// SignatureChecker looks for the signatures of releases, and keeps in the record what it
// found.
type SignatureChecker struct {
	Verifier Verifier // nil: nobody verifies
	Policy   policy.Policy
	Records  *record.Store
	Log      *slog.Logger
	Now      func() time.Time
	Jitter   func() float64
	Progress *status.Reporter
}

// Verify looks for the signature of a release, before a byte of a layer is pulled.
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
		rec.Unproved.Delete(key)
		return s.Records.Save(ctx)
	case ctx.Err() != nil:
		return err
	}
	tries := rec.Unproved[key].Tries + 1
	rec.Unproved.Set(key, record.Unproved{
		Reason: err.Error(), Forged: errors.Is(err, release.ErrForged), Keys: s.keys(ctx),
		Tries: tries, RetryAt: s.Now().Add(policy.Backoff(tries, s.Jitter())),
	})
	s.Log.Warn("not verified", "release", key, "policy", string(pol), "err", err)
	if pol == policy.SignaturesWarn {
		return nil
	}
	return fmt.Errorf("%w: %w", release.ErrHeld, err)
}

// keys are the fingerprints that count now, as one text.
func (s *SignatureChecker) keys(ctx context.Context) string {
	keys, err := s.Verifier.Keys(ctx)
	if err != nil {
		return "" // the verification has said it
	}
	return strings.Join(keys, " ")
}

// ForgetGoneKeys forgets what was signed by a key that is gone.
func (s *SignatureChecker) ForgetGoneKeys(ctx context.Context) {
	signed := s.Records.Record.Signed
	if s.Verifier == nil || len(signed) == 0 {
		return
	}
	keys := s.keys(ctx)
	if keys == "" {
		return
	}
	good := strings.Fields(keys)
	for release, by := range signed {
		if !slices.Contains(good, by) {
			s.Log.Warn("key is gone, signature is asked for again", "release", release, "key", by)
			signed.Delete(release)
		}
	}
}

// VerifyAgain looks once more for the signatures of what was not signed well: after a
// back-off, when other keys count, and when a person asks (now). A mirror may have
// served a wrong signature once, and build services sign late.
func (s *SignatureChecker) VerifyAgain(ctx context.Context, atOnce bool) {
	rec := &s.Records.Record
	if s.Verifier == nil || len(rec.Unproved) == 0 {
		return
	}
	keys, now := s.keys(ctx), s.Now()
	for key, u := range rec.Unproved {
		if atOnce || keys != "" && u.Keys != keys {
			u.Tries, u.RetryAt = 0, now // also where this cycle is interrupted
			rec.Unproved.Set(key, u)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(rec.Unproved)) {
		wait := rec.Unproved[key].RetryAt.Sub(now)
		rel, known := rec.Releases[key]
		if !known || ctx.Err() != nil || wait > 0 && wait <= policy.BackoffMost { // else the clock was wrong
			continue
		}
		if err := s.Verify(ctx, rel); err == nil && rec.Signed[key] != "" {
			s.Log.Info("verified", "release", key)
		}
	}
}
