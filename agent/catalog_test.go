// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/agent/agenttest"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
	format "github.com/kubic-project/image-update-agent/internal/catalog"
	"github.com/kubic-project/image-update-agent/tags"
)

// catalogWorld returns a node whose pod runs the only promoted release, bound to its digest.
func catalogWorld(t *testing.T) (w *world, first release.Release) {
	t.Helper()
	w = newWorld(t)
	w.Catalog = agenttest.NewCatalog()
	first = w.Registry.Release(velum, "4.0.0", 1, "1.1")
	w.Catalog.Publish(velum, agenttest.ListedAs(first))
	w.Node.PutTemplate("velum.yaml", podYAML("velum", "velum="+velum+":4.0.0"))
	require.Equal(t, status.StateCurrent, w.check().State)
	w.runs("velum.yaml", "velum", first.Digest)
	return w, first
}

// promote lists a release in the catalog.
func (w *world) promote(rel release.Release, edits ...func(*format.Release)) {
	is := agenttest.ListedAs(rel)
	for _, edit := range edits {
		edit(&is)
	}
	w.Catalog.Publish(rel.Repository, is)
}

func bound(rel release.Release) string {
	return rel.Repository + ":" + rel.Tag + "@" + rel.Digest.String()
}

func TestPodIsBoundToWhatTheCatalogLists(t *testing.T) {
	t.Parallel()
	w, first := catalogWorld(t)
	assert.Equal(t, string(rendered("velum", "velum="+bound(first))), w.Node.PodManifest("velum.yaml"))

	ahead := w.Registry.Release(velum, "4.0.0", 1, "1.2")
	s := w.check()
	assert.Equal(t, status.StateCurrent, s.State, s.Reason)
	assert.True(t, image(s, "velum.yaml", "velum").Bound)
	w.Node.Restart("velum.yaml", "velum")
	w.runs("velum.yaml", "velum", first.Digest)
	assert.NotContains(t, w.Node.PodManifest("velum.yaml"), ahead.Digest.String())
	w.idle()
}

func TestPromotionSkipsReleases(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _ := catalogWorld(t)
		for n := range 3 {
			w.Registry.Release(velum, "4.0.0", 1, fmt.Sprint("2.", n))
		}
		last := w.Registry.Release(velum, "4.0.0", 2, "1.1")
		w.promote(last)
		s := w.check()
		require.Equal(t, status.StateStaged, s.State, s.Reason)
		i := image(s, "velum.yaml", "velum")
		assert.Equal(t, "revision", i.Change)
		assert.Equal(t, last.Long, i.Offered.Tag)

		_, s = w.apply()
		assert.Equal(t, status.StateCurrent, s.State, s.Reason)
		w.runs("velum.yaml", "velum", last.Digest)
		assert.Equal(t, string(rendered("velum", "velum="+bound(last))), w.Node.PodManifest("velum.yaml"))
		w.idle()
	})
}

func TestWithdrawnRelease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first := catalogWorld(t)
		w.Catalog.Withdraw(first, "bsc#1: loses its session secret", "4.0.0-rev1-build1.2")

		s := w.check()
		assert.Equal(t, status.StateFailed, s.State, "it runs and nothing is offered instead")
		assert.Contains(t, s.Reason, "4.0.0-rev1-build1.1 is running but was withdrawn: bsc#1")
		assert.True(t, s.HasReason(status.KindWithdrawn))
		assert.Contains(t, w.Grain.Last().Reason, "bsc#1")
		require.NotNil(t, image(s, "velum.yaml", "velum").Withdrawn)
		w.runs("velum.yaml", "velum", first.Digest)

		next := w.Registry.Release(velum, "4.0.0", 1, "1.2")
		w.promote(next)
		s = w.check()
		assert.Equal(t, status.StateStaged, s.State, s.Reason)
		assert.True(t, s.HasReason(status.KindWithdrawn))
		_, s = w.apply()
		assert.Equal(t, status.StateCurrent, s.State, s.Reason)
		assert.Nil(t, image(s, "velum.yaml", "velum").Withdrawn)
		w.runs("velum.yaml", "velum", next.Digest)
	})
}

func TestPausedRolloutHasNoTime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _ := catalogWorld(t)
		w.Policy.Auto = true
		w.restart()
		next := w.Registry.Release(velum, "4.0.0", 1, "1.2")
		w.promote(next, func(l *format.Release) {
			l.Rollout = &format.Rollout{From: time.Date(9000, 1, 1, 0, 0, 0, 0, time.UTC), Hours: 1, Paused: &format.Pause{}}
		})
		s := w.check()
		hold := podOf(s, "velum.yaml").Holds[0]
		assert.Equal(t, "the publisher paused the rollout of 4.0.0-rev1-build1.2", hold.Reason)
		assert.Zero(t, hold.Until)
		assert.Zero(t, image(s, "velum.yaml", "velum").RolloutAt)
		assert.Empty(t, image(s, "velum.yaml", "velum").Notes)

		w.Policy.Auto = false
		w.restart()
		s = w.check()
		assert.Empty(t, podOf(s, "velum.yaml").Holds, "a person may apply it")
		assert.Equal(t, []string{"the publisher paused the rollout of 4.0.0-rev1-build1.2"},
			image(s, "velum.yaml", "velum").Notes)
	})
}

func TestRolloutDelaysAutomaticAppliesOnly(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first := catalogWorld(t)
		w.Policy.Auto, w.Policy.Catalog.MachineID = true, "a machine"
		w.restart()
		from := w.Clock.Now().Add(time.Hour)
		next := w.Registry.Release(velum, "4.0.0", 1, "1.2")
		w.promote(next, func(l *format.Release) { l.Rollout = &format.Rollout{From: from, Hours: 48} })

		s := w.check()
		require.Equal(t, status.StateHeld, s.State, s.Reason)
		at := image(s, "velum.yaml", "velum").RolloutAt
		assert.True(t, !at.Before(from) && at.Before(from.Add(48*time.Hour)), at)
		assert.True(t, image(s, "velum.yaml", "velum").Staged)
		assert.Equal(t, status.HoldRollout, podOf(s, "velum.yaml").Holds[0].Name)
		w.Clock.Add(at.Sub(w.Clock.Now()) - time.Second)
		w.check()
		w.runs("velum.yaml", "velum", first.Digest)
		w.Clock.Add(time.Second)
		w.check()
		w.runs("velum.yaml", "velum", next.Digest)

		later := w.Registry.Release(velum, "4.0.0", 1, "1.3")
		w.promote(later, func(l *format.Release) { l.Rollout = &format.Rollout{From: w.Clock.Now().Add(time.Hour)} })
		w.check()
		w.apply()
		w.runs("velum.yaml", "velum", later.Digest)
	})
}

// With a least severity, mode auto applies what has it at once, of all builds since the running one; the rest waits for
// a person. Status, grain and history say what each brings.
func TestModeAutoLeavesWhatIsNotSevereToAPerson(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _ := catalogWorld(t)
		w.Policy.Auto, w.Policy.MinSeverity = true, format.SeverityImportant
		w.restart()
		build := func(n string, severity format.Severity, fixes ...string) release.Release {
			rel := w.Registry.Release(velum, "4.0.0", 1, n)
			w.promote(rel, func(l *format.Release) { l.Advisory = &format.Advisory{Severity: severity, Fixes: fixes} })
			return rel
		}
		build("1.2", format.SeverityImportant, "CVE-2026-1")
		third := build("1.3", format.SeverityLow, "bsc#3")
		s := w.check()
		require.Equal(t, status.StateCurrent, s.State, s.Reason)
		w.runs("velum.yaml", "velum", third.Digest)
		assert.Equal(t, format.SeverityImportant, s.History[0].Severity)
		assert.Equal(t, []string{"bsc#3", "CVE-2026-1"}, s.History[0].Fixes)

		fourth := build("1.4", format.SeverityModerate, "bsc#4")
		s = w.check()
		require.Equal(t, status.StateHeld, s.State, s.Reason)
		w.runs("velum.yaml", "velum", third.Digest)
		hold := podOf(s, "velum.yaml").Holds[0]
		assert.Equal(t, status.HoldSeverity, hold.Name)
		assert.Contains(t, hold.Remedy, "image-update-agent apply")
		brings := image(s, "velum.yaml", "velum").Brings
		assert.Equal(t, &format.Brought{Severity: format.SeverityModerate, Fixes: []string{"bsc#4"}}, brings)
		assert.Equal(t, format.SeverityModerate, w.Grain.Last().Updates[0].Severity)
		assert.Equal(t, []string{"bsc#4"}, w.Grain.Last().Updates[0].Fixes)

		w.apply()
		w.runs("velum.yaml", "velum", fourth.Digest)
	})
}

func TestExpiredCatalog(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first := catalogWorld(t)
		w.Policy.Auto = true
		w.restart()
		next := w.Registry.Release(velum, "4.0.0", 1, "1.2")
		w.promote(next)
		w.Catalog.Expire(w.Clock.Now())

		s := w.check()
		assert.Equal(t, status.StateHeld, s.State, s.Reason)
		assert.Equal(t, status.HoldCatalog, podOf(s, "velum.yaml").Holds[0].Name)
		assert.True(t, s.Catalog.Expired)
		w.runs("velum.yaml", "velum", first.Digest)
		w.Policy.Auto = false
		w.restart()
		assert.Equal(t, status.StateStale, w.check().State)

		w.Policy.Catalog.IgnoreExpiry = true
		w.restart()
		assert.Equal(t, status.StateStaged, w.check().State)
		w.apply()
		w.runs("velum.yaml", "velum", next.Digest)
	})
}

// setWorld returns a node with two pods whose next releases form a set.
func setWorld(t *testing.T) (w *world, one, two release.Release) {
	t.Helper()
	w, _ = catalogWorld(t)
	w.promote(w.Registry.Release(mariadb, "10.0", 1, "1.1"))
	w.Node.PutTemplate("db.yaml", podYAML("db", "db="+mariadb+":10.0"))
	require.Equal(t, status.StateCurrent, w.check().State)
	one, two = w.Registry.Release(velum, "4.0.0", 1, "1.2"), w.Registry.Release(mariadb, "10.0", 1, "1.2")
	inSet := func(l *format.Release) { l.Set = "caasp-4.5.2" }
	w.promote(one, inSet)
	w.promote(two, inSet)
	return w, one, two
}

func TestBoundPodThatDoesNotComeUpIsRolledBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first := catalogWorld(t)
		bad := w.Registry.Release(velum, "4.0.0", 1, "1.2")
		w.promote(bad)
		w.check()
		w.Node.Crash(bad.Digest, true)
		_, s := w.apply()
		assert.Equal(t, status.StateFailed, s.State, s.Reason)
		w.runs("velum.yaml", "velum", first.Digest)

		good := w.Registry.Release(velum, "4.0.0", 1, "1.3")
		w.promote(good)
		w.check()
		_, s = w.apply()
		assert.Equal(t, status.StateCurrent, s.State, s.Reason)
		w.runs("velum.yaml", "velum", good.Digest)
		assert.Equal(t, string(rendered("velum", "velum="+bound(good))), w.Node.PodManifest("velum.yaml"))
		w.idle()
	})
}

func TestListedPodWithoutATemplateIsBoundToo(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.Catalog = agenttest.NewCatalog()
		w.Policy.Manage = map[string]bool{"velum.yaml": true}
		first := w.Registry.Release(velum, "4.0.0", 1, "1.1")
		w.promote(first)
		w.Node.PutPodManifest("velum.yaml", podYAML("velum", "velum="+velum+":4.0.0-rev1", "other="+mariadb+"@"+first.Digest.String()))
		w.check()
		w.apply()
		w.runs("velum.yaml", "velum", first.Digest)
		assert.Contains(t, w.Node.PodManifest("velum.yaml"), bound(first))

		next := w.Registry.Release(velum, "4.0.0", 2, "1.1")
		w.promote(next)
		s := w.check()
		require.Equal(t, status.StateStaged, s.State, s.Reason)
		w.apply()
		w.runs("velum.yaml", "velum", next.Digest)
		assert.Contains(t, w.Node.PodManifest("velum.yaml"), bound(next))
		assert.Contains(t, w.Node.PodManifest("velum.yaml"), mariadb+"@"+first.Digest.String(), "a person's digest stays")
		assert.Equal(t, status.StateCurrent, w.check().State)
		w.idle()
	})
}

func TestPersonsRollbackOfABoundPod(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first := catalogWorld(t)
		next := w.Registry.Release(velum, "4.0.0", 1, "1.2")
		w.promote(next)
		w.check()
		w.apply()
		out, _ := w.rollback()
		require.Equal(t, status.ResultRolledBack, out[0].Result, out[0].Reason)
		w.runs("velum.yaml", "velum", first.Digest)
		w.check()
		w.idle()
	})
}

func TestPodsStayBoundWithoutTheCatalog(t *testing.T) {
	t.Parallel()
	w, first := catalogWorld(t)
	w.Registry.Release(velum, "4.0.0", 1, "1.2")
	w.Catalog = nil
	w.restart()
	w.Node.Restart("velum.yaml", "velum")
	w.observe()
	w.runs("velum.yaml", "velum", first.Digest)
	assert.Contains(t, w.Node.PodManifest("velum.yaml"), bound(first))
}

// Other publishers than SUSE have v1.34.2 under v1.34 and v1, and a catalog lists v1.34.2.
func TestFloatingTagIsGivenTheReleaseOfACatalogUnderIt(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		followed string
		updates  tags.Change
		listed   []string // the newest first
		want     string   // empty: no listed tag is under the followed tag
	}{
		{"v1.34", tags.Patch, []string{"v1.34.2", "v1.34.1"}, "v1.34.2"},
		{"1.34.2", tags.Patch, []string{"1.34.2"}, "1.34.2"},
		{"v1.34", tags.Minor, []string{"v1.35.1"}, "v1.35.1"}, // as short as the followed tag
		// A pod never leaves its variant.
		{"1.34-alpine", tags.Patch, []string{"1.34.2", "1.34.2-alpine", "1.34.3"}, "1.34.2-alpine"},
		{"1.34-alpine", tags.Patch, []string{"1.34.2"}, ""},
		{"latest", tags.Minor, []string{"1.34.2"}, ""},
		// SUSE's scheme: a tag names a whole application version.
		{"1.34-rev1", tags.Patch, []string{"1.34-rev1-build2.1"}, "1.34-rev1-build2.1"},
		{"1.34", tags.Patch, []string{"1.34-rev1-build2.1"}, "1.34-rev1-build2.1"},
	} {
		synctest.Test(t, func(t *testing.T) {
			name := fmt.Sprintf("%s of %v", c.followed, c.listed)
			w := newWorld(t)
			w.Policy.Rule = func(string) policy.Rule { return policy.Rule{Updates: c.updates} }
			w.Catalog = agenttest.NewCatalog()
			before := w.Registry.Publish(velum, c.followed)
			w.Node.PutPodManifest("velum.yaml", podYAML("velum", "velum="+velum+":"+c.followed))
			w.Node.PutTemplate("velum.yaml", podYAML("velum", "velum="+velum+":"+c.followed))
			w.runs("velum.yaml", "velum", before.Digest)
			byTag := map[string]release.Release{"": before}
			for _, tag := range slices.Backward(c.listed) {
				byTag[tag] = w.Registry.Publish(velum, tag)
				w.promote(byTag[tag], func(is *format.Release) { is.Tag = tag })
			}

			s := w.check()

			offered := image(s, "velum.yaml", "velum").Offered
			if c.want == "" {
				assert.Nil(t, offered, name)
			} else if assert.NotNil(t, offered, "%s: %s", name, s.Reason) {
				assert.Equal(t, c.want, offered.Tag, name)
			}
			w.apply()
			w.runs("velum.yaml", "velum", byTag[c.want].Digest)
		})
	}
}

// A publisher's wrong clock must not keep a node from its catalog forever.
func TestForgetCatalogAcceptsTheServedVersion(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := loop(t, 0, 0)
		_, err := l.ForgetCatalog(t.Context(), nil)
		require.ErrorIs(t, err, agent.ErrNoCatalog)
	})
	synctest.Test(t, func(t *testing.T) {
		catalog := agenttest.NewCatalog()
		w := newWorld(t)
		w.Catalog = catalog
		w.Node.PutTemplate("velum.yaml", podYAML("velum", "velum="+velum+":4.0.0"))
		l := start(t, w, 0, 0)
		catalog.Fail(fmt.Errorf("version 3 is older than 4: %w", release.ErrCatalog))
		s := l.checks()
		require.Equal(t, status.StateFailed, s.State)
		catalog.Fail(nil)
		catalog.Publish(velum)
		s, err := l.ForgetCatalog(t.Context(), nil)
		require.NoError(t, err)
		assert.Empty(t, s.Catalog.Error)
		assert.EqualValues(t, 1, s.Catalog.Version)
	})
}
