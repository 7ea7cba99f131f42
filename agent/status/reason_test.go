// SPDX-License-Identifier: Apache-2.0

package status_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/tags"
)

// The most specific kind of an error.
func TestKindsOfErrors(t *testing.T) {
	t.Parallel()
	source := &release.SourceError{Repository: "r.io/a", Err: errors.New("x")}
	for want, errs := range map[status.ErrorKind][]error{
		"":                   {nil},
		status.ErrorDisk:     {&policy.ShortageError{}, release.ErrNoSpace},
		status.ErrorUnsigned: {fmt.Errorf("%w: %w", release.ErrHeld, release.ErrUnsigned)},
		status.ErrorForged:   {release.ErrForged},
		status.ErrorNotFound: {&release.SourceError{Err: release.ErrNotFound}},
		status.ErrorUnlisted: {release.ErrUnlisted},
		status.ErrorCatalog:  {release.ErrCatalog},
		status.ErrorNotAsked: {release.ErrNotAsked},
		status.ErrorNotUp:    {&release.UnhealthyError{}},
		status.ErrorPlatform: {release.ErrPlatform},
		status.ErrorSource:   {source, fmt.Errorf("%w: registry does not answer: %w", release.ErrHeld, source)},
		status.ErrorConflict: {release.ErrConflict},
		status.ErrorHeld:     {release.ErrHeld},
		status.ErrorOther:    {errors.New("x")},
	} {
		for _, err := range errs {
			assert.Equal(t, want, status.ErrorKindOf(err), "%v", err)
		}
	}
}

func TestSentenceOf(t *testing.T) {
	t.Parallel()
	newer := func(n int) status.Reason {
		return status.Reason{Kind: status.KindNotAllowed, Image: "r.io/velum", Tag: fmt.Sprintf("v%d", n), Rule: "updates"}
	}
	at := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	for want, reasons := range map[string][]status.Reason{
		"": nil,
		"no registry has been asked yet for a.yaml, r.io/velum": {
			{Kind: status.KindUnasked, PodManifest: "a.yaml"}, {Kind: status.KindUnasked, Image: "r.io/velum"},
		},
		"waiting for approval: a.yaml (rebuild), b.yaml (minor; the apply of 2026-05-01T12:00:00Z was held: busy)": {
			{Kind: status.KindApproval, PodManifest: "a.yaml", Change: "rebuild"},
			{Kind: status.KindApproval, PodManifest: "b.yaml", Change: "minor", Held: "busy", Since: at},
		},
		"x; y; newer but not allowed: velum v1 (updates), velum v2 (updates), velum v3 (updates), and more": {
			{Kind: status.KindHold, Text: "x"}, {Kind: status.KindHold, Text: "y"}, newer(1), newer(2), newer(3), newer(4),
		},
		"looks newer, but cannot be compared: velum 4-ubi9": {{Kind: status.KindLooksNewer, Image: "r.io/velum", Tag: "4-ubi9"}},
		"rebuilds only: velum latest":                       {{Kind: status.KindRebuildsOnly, Image: "r.io/velum", Tag: "latest"}},
	} {
		assert.Equal(t, want, status.SentenceOf(reasons))
	}
	assert.Equal(t, "rebuilds only: velum latest", status.WithText(status.Reason{Kind: status.KindRebuildsOnly, Image: "r.io/velum", Tag: "latest"}).Text)
	back := status.RolledBack{Runs: []string{"1"}, Denied: []string{"2", "3", "4", "5"}}
	assert.Equal(t, "a.yaml was rolled back to 1; 2, 3, 4, and more is denied until apply --retry a.yaml or a newer release", back.Sentence("a.yaml"))
}

// Running releases that must not run come first.
func TestOrderOfReasons(t *testing.T) {
	t.Parallel()
	of := func(kinds ...status.Kind) (out []status.Reason) {
		for _, k := range kinds {
			out = append(out, status.Reason{Kind: k, Text: string(k)})
		}
		return out
	}
	all := of(status.KindWithdrawn, status.KindDenied, status.KindHold, status.KindApproval)
	assert.Equal(t, of(status.KindWithdrawn, status.KindDenied, status.KindNode, status.KindHold, status.KindApproval), status.AddReason(all, of(status.KindNode)[0]))
	assert.Equal(t, of(status.KindWithdrawn, status.KindDenied, status.KindApproval), status.OfAnyState(all))
	assert.Equal(t, of(status.KindDenied, status.KindHold), status.Sorted(of(status.KindHold, status.KindDenied, status.KindHold)))
	s := status.Status{State: status.StateStaged, Reasons: of(status.KindDenied, status.KindApproval)}
	s.SetFailed(status.Reason{Kind: status.KindRecord, Text: "full", PodManifest: "a.yaml", Tag: "2", Since: time.Unix(0, 0)})
	epoch := time.Unix(0, 0).UTC()
	assert.Equal(t, status.StateFailed, s.State)
	assert.Equal(t, "denied; full; waiting for approval:  ()", s.Reason)
	assert.Equal(t, []status.Failure{{Kind: status.KindRecord, PodManifest: "a.yaml", To: "2", Reason: "full", At: &epoch}}, s.Failures)
	assert.True(t, s.HasReason(status.KindRecord))
	assert.False(t, s.HasReason(status.KindHold))
}

func TestRebuildsOnlyOf(t *testing.T) {
	t.Parallel()
	for tag, want := range map[string]*status.RebuildsOnly{
		"2.2.0-c558096-cap": {
			Tag: "2.2.0-c558096-cap", Reason: "a hash in it, which has no order", Pattern: "^(?P<version>[0-9.]+)-[0-9a-f]+-cap$",
		},
		"1.5.4-rev5-build": {Tag: "1.5.4-rev5-build", Reason: "empty build"},
		"latest":           {Tag: "latest", Reason: "no version in it"},
		"3.6.4-0":          nil,
		"1.28.0-alpine":    nil,
		"1.28.0":           nil,
		"":                 nil,
	} {
		assert.Equal(t, want, status.RebuildsOnlyOf(tag, tags.Scheme{}, []string{"latest", "2.2.1-9f8e7d6-cap"}), tag)
		if want != nil {
			assert.Empty(t, status.RebuildsOnlyOf(tag, tags.Scheme{}, []string{tag, "2.2.1"}).Pattern, "not tried")
		}
	}
}
