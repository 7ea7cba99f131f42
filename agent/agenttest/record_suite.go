// SPDX-License-Identifier: Apache-2.0

package agenttest

import (
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// AnnouncerUnderTest is an agent.Announcer and the view of the UI.
type AnnouncerUnderTest struct {
	Announcer agent.Announcer
	// Read returns the announcement that the UI sees.
	Read func(t *testing.T) status.Announcement
	// SetBusy starts or ends another operation on the node.
	SetBusy func(t *testing.T, busy bool)
	// Writes counts the writes so far; may be nil.
	Writes func(t *testing.T) int
}

// TestAnnouncer asserts the behavior of an agent.Announcer.
func TestAnnouncer(t *testing.T, open func(t *testing.T) AnnouncerUnderTest) {
	one := status.Announcement{State: "staged", Updates: []status.AnnouncedUpdate{
		{
			Image: "registry.suse.com/caasp/v4/etcd", Change: "rebuild",
			From: "3.4.13-rev1-build1.1", To: "3.4.13-rev1-build1.2", Digest: digest.FromString("e"),
		},
		{Image: "registry.suse.com/caasp/v4/velum", Change: "convert", To: "4.0.0-rev1", Digest: digest.FromString("v")},
	}}
	none := status.Announcement{State: "current"}
	t.Run("what is announced is read, until it is announced anew", func(t *testing.T) {
		s := open(t)
		for _, a := range []status.Announcement{one, none, one} {
			require.NoError(t, s.Announcer.Announce(t.Context(), a))
			got := s.Read(t)
			assert.Equal(t, a.State, got.State)
			assert.ElementsMatch(t, a.Updates, got.Updates)
		}
	})
	t.Run("the same is not written again", func(t *testing.T) {
		s := open(t)
		require.NoError(t, s.Announcer.Announce(t.Context(), one))
		if s.Writes == nil {
			return
		}
		before := s.Writes(t)
		require.NoError(t, s.Announcer.Announce(t.Context(), one))
		assert.Equal(t, before, s.Writes(t))
	})
	t.Run("a busy node is told, and nothing written on it", func(t *testing.T) {
		s := open(t)
		require.NoError(t, s.Announcer.Announce(t.Context(), one))
		reason, err := s.Announcer.Busy(t.Context())
		require.NoError(t, err)
		assert.Empty(t, reason)
		s.SetBusy(t, true)
		reason, err = s.Announcer.Busy(t.Context())
		require.NoError(t, err)
		assert.NotEmpty(t, reason)
		require.ErrorIs(t, s.Announcer.Announce(t.Context(), none), release.ErrHeld)
		assert.Equal(t, "staged", s.Read(t).State)
		s.SetBusy(t, false)
		require.NoError(t, s.Announcer.Announce(t.Context(), none))
		assert.Equal(t, "current", s.Read(t).State)
	})
}

// TestRecorder asserts the behavior of a record.Recorder. open returns a recorder on an empty disk, and a function for
// another one on the same disk: the next start.
func TestRecorder(t *testing.T, open func(t *testing.T) (r record.Recorder, again func() record.Recorder)) {
	t.Run("an absent record is an empty one", func(t *testing.T) {
		r, _ := open(t)
		got, err := r.Load(t.Context())
		require.NoError(t, err)
		assert.Equal(t, record.Record{}, got)
	})
	t.Run("a record comes back as it went", func(t *testing.T) {
		r, again := open(t)
		want := FullRecord()
		require.NoError(t, r.Save(t.Context(), want))
		for _, r := range []record.Recorder{r, again()} {
			got, err := r.Load(t.Context())
			require.NoError(t, err)
			assert.Equal(t, want, got)
		}
	})
	t.Run("the last record counts, and is a copy", func(t *testing.T) {
		r, again := open(t)
		first := FullRecord()
		require.NoError(t, r.Save(t.Context(), first))
		next := FullRecord()
		next.State, next.Approved = status.StateHeld, nil
		require.NoError(t, r.Save(t.Context(), next))
		next.Good["changed later"] = record.Good{}
		got, err := again().Load(t.Context())
		require.NoError(t, err)
		assert.Equal(t, status.StateHeld, got.State)
		assert.Nil(t, got.Approved)
		assert.NotContains(t, got.Good, "changed later")
	})
	t.Run("a status can be published at any time", func(t *testing.T) {
		r, _ := open(t)
		require.NoError(t, r.Publish(t.Context(), status.Status{SchemaVersion: status.StatusSchemaVersion}))
	})
}

// FullRecord returns a record with a value in each field.
func FullRecord() record.Record {
	const repository = "registry.suse.com/caasp/v4/velum"
	at := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	d := digest.FromString("d")
	rel := release.Release{
		Repository: repository, Tag: "4.0.0-rev1", Long: "4.0.0-rev1-build1.1", Digest: d,
		Build: release.Build{Config: digest.FromString("c"), Created: at, Size: 7, Version: "4.0.0"},
	}
	return record.Record{
		Version: record.RecordVersion, State: status.StateStaged, Since: at, LastCheck: at,
		Releases: map[string]release.Release{repository + "@" + d.String(): rel},
		Lists: map[string]record.TagList{repository: {
			At: at, Tags: []string{"4.0.0"}, Unrecognized: 1, Malformed: 2, Error: "no",
		}},
		Sources: map[string]record.SourceRecord{repository: {
			Host: "h", Mirror: true, Insecure: true, HostsIgnored: "i", Skipped: "s", LastSuccess: at,
			Failures: 3, Error: "e", RetryAt: at,
		}},
		Offers: map[string]record.Answer{
			"q": {At: at, Follow: rel, Newest: rel, Notes: []string{"n"}},
			"r": {At: at, Error: "not found", Gone: true},
		},
		Wrote: map[string]digest.Digest{"velum.yaml": d},
		Good: map[string]record.Good{"velum.yaml/velum": {
			Repository: repository, Running: d, PickedUp: true,
			Before: []release.Pin{{Repository: repository, Digest: digest.FromString("p")}},
		}},
		Approved: map[string]record.Approval{"velum.yaml": {At: at, Offer: "o"}},
		HeldBack: map[string]record.HeldApply{"velum.yaml": {At: at, Offer: "o", Kind: status.ErrorHeld, Reason: "r"}},
		Failed:   map[string]record.Failure{"velum.yaml": {At: at, Offer: "o", Reason: "r"}},
	}
}
