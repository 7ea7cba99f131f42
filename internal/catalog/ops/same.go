// SPDX-License-Identifier: Apache-2.0

package ops

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/internal/catalog"
)

// IsSame reports whether nodes see no difference between releases: only the ops that changed them may differ.
func IsSame(a, b catalog.Release) bool {
	return a.Tag == b.Tag && a.Digest == b.Digest && a.Created.Equal(b.Created) && a.Set == b.Set &&
		slices.Equal(a.Members, b.Members) && IsSameRollout(a.Rollout, b.Rollout) &&
		isSameWithdrawal(a.Withdrawn, b.Withdrawn) && a.Advisory.IsSame(b.Advisory) && slices.Equal(a.Critical, b.Critical) &&
		maps.EqualFunc(a.Unknown, b.Unknown, func(x, y json.RawMessage) bool { return bytes.Equal(x, y) })
}

// IsSameRollout reports whether two rollouts are one; nil is none.
func IsSameRollout(a, b *catalog.Rollout) bool {
	if a == nil || b == nil {
		return a == b
	}
	if (a.Paused == nil) != (b.Paused == nil) || !a.From.Equal(b.From) || a.Hours != b.Hours {
		return false
	}
	return a.Paused == nil || a.Paused.At.Equal(b.Paused.At) && a.Paused.From.Equal(b.Paused.From)
}

func isSameWithdrawal(a, b *catalog.Withdrawal) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.At.Equal(b.At) && a.Reason == b.Reason && a.To == b.To
}

// Find returns the release of a tag; nil if the page does not list it.
func Find(p catalog.Page, tag string) *catalog.Release {
	at := slices.IndexFunc(p.Releases, func(r catalog.Release) bool { return r.Tag == tag })
	if at < 0 {
		return nil
	}
	return &p.Releases[at]
}

// Newest returns the newest release of a page that is offered; nil if there is none.
func Newest(p catalog.Page) *catalog.Release {
	at := slices.IndexFunc(p.Releases, func(r catalog.Release) bool { return r.Withdrawn == nil })
	if at < 0 {
		return nil
	}
	return &p.Releases[at]
}

// WithdrawnAs returns the withdrawn release of a page that has a tag or a digest; nil: there is none.
func WithdrawnAs(p catalog.Page, tag string, d digest.Digest) *catalog.Release {
	at := slices.IndexFunc(p.Releases, func(r catalog.Release) bool {
		return r.Withdrawn != nil && (r.Tag == tag || r.Digest == d)
	})
	if at < 0 {
		return nil
	}
	return &p.Releases[at]
}
