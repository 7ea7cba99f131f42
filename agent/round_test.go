// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/source"
	"github.com/kubic-project/image-update-agent/tags"
)

func TestStoppedPollKeepsItsAnswers(t *testing.T) {
	t.Parallel()
	w := twenty(t)
	w.poll()
	next := w.Registry.Release("registry.suse.com/caasp/v4/app00", "1.0.0", 1, "1.2")
	w.Registry.Counts()
	ctx, stop := context.WithCancel(t.Context())
	w.Registry.OnAsk = func(_, name string) {
		if name == "registry.suse.com/caasp/v4/app05:1.0.0-rev1" {
			stop()
		}
	}
	s, err := w.agent.Cycle(ctx, source.PollDue)
	require.NoError(t, err)
	require.NotNil(t, image(s, "app00.yaml", "app").Offered)
	assert.Equal(t, next.Digest, image(s, "app00.yaml", "app").Offered.Digest)
	assert.Empty(t, image(s, "app05.yaml", "app").Error, "it is nobody's failure")
	assert.Equal(t, 7, w.Registry.Counts().Heads, "six of them, and a long tag")
}

func TestFollowedAndNewestTagAreBothReadTwiceAndOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _ := confirming(t)
		w.Registry.Release(velum, "4.0.0", 1, "1.2")
		next := w.Registry.Release(velum, "4.0.0", 2, "1.1")
		var again []string
		w.meanwhile(func(int) { w.Registry.OnAsk = func(_, name string) { again = append(again, name) } })
		w.check()
		assert.Equal(t, []string{velum + ":4.0.0-rev1", velum + ":4.0.0-rev2"}, again)
		began := time.Now()
		w.poll()
		assert.Zero(t, time.Since(began))
		w.Registry.Tag(velum, "4.0.0-rev3", next.Digest)
		w.check()
		assert.Equal(t, 30*time.Second, time.Since(began), "what another tag names is new")
	})
}

// A mirror that lags behind for a moment takes no offer back.
func TestMomentaryOlderBuildKeepsTheOffer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first := confirming(t)
		next := w.Registry.Release(velum, "4.0.0", 1, "1.2")
		w.poll()
		w.Registry.Tag(velum, "4.0.0-rev1", first.Digest) // the node has it
		w.meanwhile(func(int) { w.Registry.Tag(velum, "4.0.0-rev1", next.Digest) })
		s := w.poll()
		require.NotNil(t, image(s, "velum.yaml", "velum").Offered, s.Reason)
		assert.Equal(t, next.Digest, image(s, "velum.yaml", "velum").Offered.Digest)
	})
}

func TestUnstableTagAffectsNoOther(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _ := confirming(t)
		w.Registry.Release(velum, "4.0.0", 1, "1.2")
		other := w.Registry.Release(mariadb, "4.0.0", 1, "1.1")
		foreign := w.Registry.Release(etcd, "4.0.0", 1, "1.1")
		w.Registry.OtherPlatform(foreign.Digest)
		w.Node.PutTemplate("db.yaml", podYAML("db", "db="+mariadb+":4.0.0-rev1"))
		w.Node.PutTemplate("etcd.yaml", podYAML("etcd", "etcd="+etcd+":4.0.0-rev1"))
		w.meanwhile(func(n int) { w.Registry.Release(velum, "4.0.0", 1, fmt.Sprintf("2.%d", n)) })
		asked := map[string]int{}
		w.Registry.OnAsk = func(what, name string) { asked[what+" "+name]++ }
		s := w.poll()
		require.NotNil(t, image(s, "db.yaml", "db").Running, s.Reason)
		assert.Equal(t, other.Digest, image(s, "db.yaml", "db").Running.Digest)
		assert.Equal(t, 1, asked["resolve "+etcd+":4.0.0-rev1"], "what is not offered is not read again")
		assert.Equal(t, 1, asked["describe "+foreign.Digest.String()])
		assert.Equal(t, etcd, s.Sources[0].Repository)
		assert.Zero(t, s.Sources[0].Failures, "it did answer")
	})
}

func TestNewerTagsAreSearchedWithinThePolicy(t *testing.T) {
	t.Parallel()
	long := "4.0.0-rev1-build1.5"
	for name, c := range map[string]struct {
		tag     string
		rule    policy.Rule
		want    string
		refused []string
	}{
		"none":                       {"4.0.0-rev1", policy.Rule{Updates: tags.Same}, "", []string{"4.0.0-rev2", "4.0.0-rev1-build1.6"}},
		"rebuild":                    {"4.0.0-rev1", policy.Rule{Updates: tags.Rebuild}, "", []string{"4.0.0-rev2"}},
		"none, of a long tag":        {long, policy.Rule{Updates: tags.Same}, "", []string{"4.0.0-rev2-build1.1", "4.0.0-rev1-build1.6"}},
		"rebuild, of a long tag":     {long, policy.Rule{Updates: tags.Rebuild}, "4.0.0-rev1-build1.6", []string{"4.0.0-rev2-build1.1"}},
		"what is denied is named so": {long, policy.Rule{Updates: tags.Rebuild, Deny: []string{"*1.6"}}, "", []string{"4.0.0-rev2-build1.1", "4.0.0-rev1-build1.6"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.Policy.Rule = func(string) policy.Rule { return c.rule }
			w.Registry.PublishBuild(velum, built("five", april, ""), "4.0.0-rev1", long)
			w.Registry.PublishBuild(velum, built("two", april.Add(-time.Hour), ""), "4.0.0-rev2", "4.0.0-rev2-build1.1")
			w.Registry.PublishBuild(velum, built("six", april.Add(time.Hour), ""), "4.0.0-rev1-build1.6")
			w.Node.PutPodManifest("velum.yaml", podYAML("velum", "velum="+velum+":"+c.tag))
			i := image(w.check(), "velum.yaml", "velum")
			if c.want == "" {
				assert.Nil(t, i.Offered)
			} else {
				require.NotNil(t, i.Offered)
				assert.Equal(t, c.want, i.Offered.Tag)
			}
			var refused []string
			for _, r := range i.Refused {
				if r.Rule != policy.RulePublishing {
					refused = append(refused, r.Tag)
				}
			}
			assert.Equal(t, c.refused, refused)
			if c.tag == long {
				assert.Len(t, i.Refused, len(c.refused), "a long tag waits for no floating one")
			}
		})
	}
}

func TestNewerNameOfAnEarlierBuildIsOfferedWithANote(t *testing.T) {
	t.Parallel()
	w := follows(t, policy.Rule{Updates: tags.Revision})
	w.Registry.PublishBuild(velum, built("two", april.Add(-time.Hour), ""), "4.0.0-rev2", "4.0.0-rev2-build1.1")
	i := image(w.check(), "velum.yaml", "velum")
	require.NotNil(t, i.Offered)
	require.NotEmpty(t, i.Notes)
	assert.Contains(t, i.Notes[0], "4.0.0-rev2-build1.1 is newer by name than 4.0.0-rev1-build1.5, but was created earlier")
}

// Nothing runs that could be compared: what is followed is.
func TestNewPodDoesNotStartWithAnotherApplication(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Registry.PublishBuild(velum, built("a", april, "caasp/v4/velum"), "4.0.0-rev1")
	w.Registry.PublishBuild(velum, built("b", april, "caasp/v4/grafana"), "4.0.0-rev2")
	w.Node.PutTemplate("velum.yaml", podYAML("velum", "velum="+velum+":4.0.0-rev1"))
	s := w.check()
	assert.Contains(t, w.Node.PodManifest("velum.yaml"), "4.0.0-rev1\n", s.Reason)
}

// A host may send a Retry-After of a day; jitter spreads the nodes after it.
func TestDayLongWaitIsNoWrongClock(t *testing.T) {
	t.Parallel()
	w, _ := running(t)
	w.agent.Jitter = func() float64 { return 0.99 }
	w.Registry.Down(refuses(429, w.Clock.Now().Add(24*time.Hour)))
	w.poll()
	w.Registry.Counts()
	w.Clock.Add(time.Minute)
	w.cycle(source.PollFailed)
	assert.Zero(t, w.Registry.Counts())
	w.Clock.Add(59 * time.Hour)
	w.cycle(source.PollFailed)
	assert.Zero(t, w.Registry.Counts())
	w.Clock.Add(time.Hour)
	w.cycle(source.PollFailed)
	assert.Equal(t, 1, w.Registry.Counts().Heads)
}
