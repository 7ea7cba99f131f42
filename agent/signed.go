// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
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

// verify is done before a byte of a layer is pulled.
func (a *Agent) verify(ctx context.Context, r Release) error {
	policy, key := a.Policy.rule(r.Repository).Signatures, releaseKey(r.Repository, r.Digest)
	if policy == "" || policy == SignaturesOff || a.Verifier == nil || a.record.Signed[key] != "" {
		return nil
	}
	end := a.attend()
	by, err := a.Verifier.Verify(ctx, r)
	end()
	switch {
	case err == nil:
		a.record.sign(key, by)
		return a.save(ctx)
	case ctx.Err() != nil:
		return err
	}
	a.record.doubt(key, err, a.keys(ctx), a.Now(), a.jitter())
	a.Log.Warn("not verified", "cycle", a.cycle, "release", key, "policy", string(policy), "err", err)
	if policy == SignaturesWarn {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrHeld, err)
}

// keys are the fingerprints that count now, as one text.
func (a *Agent) keys(ctx context.Context) string {
	keys, err := a.Verifier.Keys(ctx)
	if err != nil {
		return "" // the verification has said it
	}
	return strings.Join(keys, " ")
}

func (r *Record) sign(key, by string) {
	if r.Signed == nil {
		r.Signed = map[string]string{}
	}
	r.Signed[key] = by
	delete(r.Unproved, key)
}

func (r *Record) doubt(key string, err error, keys string, now time.Time, jitter float64) {
	if r.Unproved == nil {
		r.Unproved = map[string]Unproved{}
	}
	tries := r.Unproved[key].Tries + 1
	r.Unproved[key] = Unproved{
		Reason: err.Error(), Forged: errors.Is(err, ErrForged), Keys: keys,
		Tries: tries, RetryAt: now.Add(Backoff(tries, jitter)),
	}
}

// forgetKeys forgets what was signed by a key that is gone.
func (a *Agent) forgetKeys(ctx context.Context) {
	if a.Verifier == nil || len(a.record.Signed) == 0 {
		return
	}
	keys := a.keys(ctx)
	if keys == "" {
		return
	}
	good := strings.Fields(keys)
	for name, by := range a.record.Signed {
		if !slices.Contains(good, by) {
			a.Log.Warn("key is gone, signature is asked for again", "cycle", a.cycle, "release", name, "key", by)
			delete(a.record.Signed, name)
		}
	}
}

// verifyAgain looks once more for the signatures of what was not signed well: after
// a back-off, when other keys count, and when a person asks. A mirror may have
// served a wrong signature once, and build services sign late.
func (a *Agent) verifyAgain(ctx context.Context, poll Poll) {
	if a.Verifier == nil || len(a.record.Unproved) == 0 {
		return
	}
	keys, now := a.keys(ctx), a.Now()
	for key, u := range a.record.Unproved {
		if poll == PollAll || keys != "" && u.Keys != keys {
			u.Tries, u.RetryAt = 0, now // also where this cycle is interrupted
			a.record.Unproved[key] = u
		}
	}
	for _, key := range slices.Sorted(maps.Keys(a.record.Unproved)) {
		wait := a.record.Unproved[key].RetryAt.Sub(now)
		rel, known := a.record.Releases[key]
		if !known || ctx.Err() != nil || wait > 0 && wait <= backoffMost { // else the clock was wrong
			continue
		}
		if err := a.verify(ctx, rel); err == nil && a.record.Signed[key] != "" {
			a.Log.Info("verified", "cycle", a.cycle, "release", key)
		}
	}
}

// unproved refuses a release that is not signed well, where that is required.
func (r *Record) unproved(rel Release, rule Rule) (Refusal, bool) {
	u, is := r.Unproved[releaseKey(rel.Repository, rel.Digest)]
	if !is || rule.Signatures != SignaturesRequire {
		return Refusal{}, false
	}
	again := u.RetryAt.UTC()
	return Refusal{
		Tag: rel.Name(), Rule: RuleSignature, RetryAt: again,
		Reason: u.Reason + "; looked for again at " + again.Format(time.RFC3339),
	}, true
}

// refuses tells by which rule a release may not be offered, whatever runs.
func (r *Record) refuses(rel Release, rule Rule) (Refusal, bool) {
	if no, refused := rule.refuses(rel); refused {
		return no, true
	}
	if no, refused := r.denies(rel); refused {
		return no, true
	}
	return r.unproved(rel, rule)
}

// isStaged reports that a release is on the node, and signed where that is
// required: what was staged before it was is looked at once more.
func (d *decider) isStaged(rel Release) bool {
	signed := d.policy.rule(rel.Repository).Signatures != SignaturesRequire ||
		d.rec.Signed[releaseKey(rel.Repository, rel.Digest)] != ""
	return signed && d.inv.staged(rel)
}
