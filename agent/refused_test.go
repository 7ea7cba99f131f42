// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/source"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/manifests"
	"github.com/kubic-project/image-update-agent/tags"
)

// What runs is what a release is judged against: it is known as long as it runs,
// also where it ends again and again, which is why it was withdrawn.
func TestCrashingWithdrawnBuildIsReportedInEveryCycle(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := follows(t, policy.Rule{Updates: tags.Revision})
		bad := w.Registry.PublishBuild(velum, built("x", april.Add(time.Hour), ""), "4.0.0-rev1", "4.0.0-rev1-build1.6")
		w.Node.Crash(bad.Digest, true)
		w.Node.Restart("velum.yaml", "velum") // kubelet takes it by itself
		w.poll()
		w.Registry.PublishBuild(velum, built("y", april.Add(-time.Hour), ""), "4.0.0-rev1", "4.0.0-rev1-build1.3")
		for _, s := range []status.Status{w.poll(), w.observe(), w.observe()} {
			i := image(s, "velum.yaml", "velum")
			assert.Nil(t, i.Offered)
			require.NotEmpty(t, i.Refused)
			assert.Equal(t, policy.RuleOlder, i.Refused[0].Rule)
		}
		w.idle()
		w.Registry.Counts()
		w.poll()
		assert.Zero(t, w.Registry.Counts().Describes, "what runs was learnt once")
	})
}

// Without long tags, a build of the year 2999 would be newer than all later ones.
func TestFutureTimeIsIgnored(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.Registry.PublishBuild(velum, built("first", april.AddDate(973, 0, 0), ""), "4.0.0-rev1")
	w.Node.PutTemplate("velum.yaml", podYAML("velum", "velum="+velum+":4.0.0-rev1"))
	require.Equal(t, status.StateCurrent, w.check().State)
	w.runs("velum.yaml", "velum", first.Digest)
	next := w.Registry.PublishBuild(velum, built("next", april, ""), "4.0.0-rev1")
	i := image(w.check(), "velum.yaml", "velum")
	require.NotNil(t, i.Offered, i.Refused)
	assert.Equal(t, next.Digest, i.Offered.Digest)
	w.Clock.Add(time.Hour)
	i = image(w.observe(), "velum.yaml", "velum")
	require.NotNil(t, i.Offered, i.Refused)
	out, _ := w.apply()
	require.Equal(t, status.ResultApplied, out[0].Result, out[0].Reason)

	w.Registry.PublishBuild(velum, built("old", april.Add(-time.Hour), ""), "4.0.0-rev1")
	i = image(w.check(), "velum.yaml", "velum")
	require.NotEmpty(t, i.Refused, "a time in the past is evidence")
	assert.Equal(t, policy.RuleOlder, i.Refused[0].Rule)
}

func TestTwoContainersOnTwoDigestsOfOneTag(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	one := w.Registry.PublishBuild(velum, built("one", april, ""), "4.0.0-rev1", "4.0.0-rev1-build1.5")
	w.Node.PutTemplate("velum.yaml", podYAML("velum", "a="+velum+":4.0.0-rev1", "b="+velum+":4.0.0-rev1"))
	require.Equal(t, status.StateCurrent, w.check().State)
	two := w.Registry.PublishBuild(velum, built("two", april.Add(time.Hour), ""), "4.0.0-rev1", "4.0.0-rev1-build1.6")
	w.Node.Restart("velum.yaml", "b")
	w.runs("velum.yaml", "a", one.Digest)
	w.runs("velum.yaml", "b", two.Digest)
	w.Disk.Lose()
	w.restart()
	between := w.Registry.PublishBuild(velum, built("y", april.Add(time.Minute), ""), "4.0.0-rev1", "4.0.0-rev1-build1.5.1")
	s := w.poll()
	assert.Nil(t, image(s, "velum.yaml", "b").Offered, "it runs a later one")
	require.NotNil(t, image(s, "velum.yaml", "a").Offered, s.Reason)
	assert.Equal(t, between.Digest, image(s, "velum.yaml", "a").Offered.Digest)
	w.idle()
}

// An image that was loaded by hand has no digest that CRI or a registry knows.
func TestRunningImageIsNoRebuildOfItself(t *testing.T) {
	t.Parallel()
	running, config, next := digest.FromString("running"), digest.FromString("config"), digest.FromString("next")
	inv := node.Inventory{
		Templates:    []node.PodFile{{Name: "velum.yaml", Data: podYAML("velum", "velum="+velum+":4.0.0-rev1")}},
		PodManifests: []node.PodFile{{Name: "velum.yaml", Data: rendered("velum", "velum="+velum+":4.0.0-rev1")}},
		Containers: []node.Container{
			{ID: "1", Sandbox: "s", Pod: "velum-node1", Namespace: "default", Name: "velum", Running: true, Image: config},
		},
		Held: []node.HeldImage{{Name: velum + ":4.0.0-rev1", Digest: running, Config: config}},
	}
	q := release.Question{Repository: velum, Tag: "4.0.0-rev1", Convert: true}
	rel := release.Release{Repository: velum, Tag: "4.0.0-rev1", Digest: next, Build: release.Build{Config: digest.FromString("other")}}
	rule := policy.Rule{Updates: tags.Revision, Deny: []string{next.String()}}
	p := policy.Policy{PullPolicy: manifests.PullAlways, Rule: func(string) policy.Rule { return rule }}
	plan := plan.Decide(inv, map[release.Question]source.Offer{q: {Question: q, Follow: rel, Newest: rel}}, record.Record{}, p, april)
	i := plan.Pods[0].Images[0]
	assert.Equal(t, running, i.Target.Digest)
	assert.Equal(t, running, i.Running.Digest)
	assert.Empty(t, plan.Pods[0].Change)
}

// The pod manifest still has the short tag, for nobody has approved its
// conversion: what was moved to an older build is reported all the same.
func TestShortTagMovedToAnOlderBuildIsNotFollowed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Registry.PublishBuild(velum, built("one", april, ""), "4.0.0", "4.0.0-rev1", "4.0.0-rev1-build1.5")
	old := podYAML("velum", "velum="+velum+":4.0.0")
	w.Node.PutPodManifest("velum.yaml", old)
	w.Node.PutTemplate("velum.yaml", old)
	require.Equal(t, "convert", image(w.check(), "velum.yaml", "velum").Change)
	lower := w.Registry.PublishBuild(velum, built("y", april.Add(-time.Hour), ""), "4.0.0", "4.0.0-rev1", "4.0.0-rev1-build1.3")
	s := w.check()
	i := image(s, "velum.yaml", "velum")
	assert.Empty(t, i.Change)
	require.NotEmpty(t, i.Refused)
	assert.Equal(t, policy.RuleOlder, i.Refused[0].Rule)
	assert.Empty(t, w.Node.Names(lower.Digest))
	assert.True(t, held(s, "velum.yaml", status.HoldRefused), "its pull policy alone would restart it, and start the older one")
	w.idle()

	w.Policy.Rule = func(string) policy.Rule { return policy.Rule{Updates: tags.Revision, Follow: "4.0.0-rev1"} }
	w.restart()
	s = w.check()
	require.NotNil(t, image(s, "velum.yaml", "velum").Offered, "what the configuration names is meant")
	assert.Equal(t, lower.Digest, image(s, "velum.yaml", "velum").Offered.Digest)
}

// A pod of two images: the tag of one was moved to an older build, the other has an update that
// needs a new pod.
func TestRestartThatWouldStartARefusedImageIsHeld(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{manifests.PullAlways, manifests.PullIfNotPresent} {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.Policy.PullPolicy = policy
			five := w.Registry.PublishBuild(velum, built("one", april, ""), "4.0.0-rev1", "4.0.0-rev1-build1.5")
			w.Registry.Release(mariadb, "10.0", 1, "1.1")
			w.Node.PutTemplate("velum.yaml", podYAML("velum", "a="+velum+":4.0.0-rev1", "b="+mariadb+":10.0-rev1"))
			require.Equal(t, status.StateCurrent, w.check().State)
			w.Registry.PublishBuild(velum, built("y", april.Add(-time.Hour), ""), "4.0.0-rev1", "4.0.0-rev1-build1.3")
			next := w.Registry.Release(mariadb, "10.0", 2, "1.1")
			s := w.check()
			require.NotNil(t, image(s, "velum.yaml", "b").Offered)
			if policy == manifests.PullIfNotPresent {
				out, _ := w.apply()
				assert.Equal(t, status.ResultApplied, out[0].Result, "the node has what runs: %s", out[0].Reason)
				w.runs("velum.yaml", "a", five.Digest)
				w.runs("velum.yaml", "b", next.Digest)
				return
			}
			assert.Equal(t, status.StateHeld, s.State)
			for _, said := range []string{"refused: " + velum + ":4.0.0-rev1", "4.0.0-rev1-build1.3", "older", "went back"} {
				assert.Contains(t, s.Reason, said)
			}
			out, _ := w.apply()
			assert.Equal(t, status.ResultHeld, out[0].Result)
			w.idle()

			w.Registry.Tag(velum, "4.0.0-rev1", five.Digest)
			w.check()
			out, _ = w.apply()
			assert.Equal(t, status.ResultApplied, out[0].Result, out[0].Reason)
			w.runs("velum.yaml", "b", next.Digest)
		})
	}
}

// A container alone is stopped without its neighbours: what they would start does
// not matter.
func TestRebuildBesideARefusedImageIsApplied(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	five := w.Registry.PublishBuild(velum, built("one", april, ""), "4.0.0-rev1", "4.0.0-rev1-build1.5")
	w.Registry.Release(mariadb, "10.0", 1, "1.1")
	w.Node.PutTemplate("velum.yaml", podYAML("velum", "a="+velum+":4.0.0-rev1", "b="+mariadb+":10.0-rev1"))
	require.Equal(t, status.StateCurrent, w.check().State)
	w.Registry.PublishBuild(velum, built("y", april.Add(-time.Hour), ""), "4.0.0-rev1", "4.0.0-rev1-build1.3")
	next := w.Registry.Release(mariadb, "10.0", 1, "1.2")
	w.check()
	out, _ := w.apply()
	assert.Equal(t, status.ResultApplied, out[0].Result, out[0].Reason)
	w.runs("velum.yaml", "a", five.Digest)
	w.runs("velum.yaml", "b", next.Digest)
}

func TestRulesForImagesOfTheConfiguration(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.Registry.Release(velum, "4.0.0", 1, "1.1")
	second := w.Registry.Release(velum, "4.0.1", 1, "1.1")
	w.Policy.Images = []release.Reference{{Repository: velum, Tag: "4.0.0"}}
	deny := func(patterns ...string) {
		w.Policy.Rule = func(string) policy.Rule { return policy.Rule{Updates: tags.Patch, Deny: patterns} }
		w.restart()
	}
	deny("4.0.*")
	s := w.check()
	assert.Empty(t, w.Node.Names(first.Digest))
	assert.Contains(t, s.Images[0].Error, "refused by deny")
	w.idle()
	deny()
	w.observe()
	assert.False(t, w.Node.Pinned(velum, second.Digest), "nobody has asked for it yet")
	assert.True(t, w.Node.Pinned(velum, first.Digest), "but for this, and the rule counts that is in force now")
	w.check()
	assert.True(t, w.Node.Pinned(velum, second.Digest))
	deny("4.0.1")
	w.observe()
	assert.True(t, w.Node.Pinned(velum, first.Digest), "the next that is allowed")
	assert.False(t, w.Node.Pinned(velum, second.Digest))
	w.idle()
}

// What ran when the source did not have it is learnt once the source has it.
func TestDigestIsDescribedWhenTheRegistryIsBack(t *testing.T) {
	t.Parallel()
	w := follows(t, policy.Rule{Updates: tags.Revision})
	five, _ := w.Node.Container("velum.yaml", "velum")
	w.Registry.Vanish(velum, five.Digests[0])
	w.Disk.Lose()
	w.restart()
	w.Registry.PublishBuild(velum, built("x", april.Add(time.Hour), ""), "4.0.0-rev1", "4.0.0-rev1-build1.6")
	w.poll()
	again := w.Registry.Restore(velum, five.Digests[0], built("five", april, ""))
	w.Registry.Tag(velum, "4.0.0-rev1", again)
	s := w.poll()
	assert.Equal(t, april, *image(s, "velum.yaml", "velum").Created)
}

func TestHoldRevokesAnApproval(t *testing.T) {
	t.Parallel()
	w, first := offered(t)
	ctx, kill := context.WithCancel(t.Context())
	w.Node.OnStop = func(string) error { kill(); return ctx.Err() }
	_, _, err := w.agent.Apply(ctx, agent.ApplyRequest{Which: plan.All()})
	require.NoError(t, err)
	require.Contains(t, w.Disk.JSON(), `"approved"`)
	w.Node.OnStop = nil
	w.restart()
	w.hold(record.PersonHold{Reason: "stop"})
	w.restart()
	_, s, err := w.agent.Unhold(t.Context(), nil, true)
	require.NoError(t, err)
	assert.Equal(t, status.StateStaged, s.State, "it is to be approved again")
	w.runs("velum.yaml", "velum", first.Digest)
}

func TestAlarmNamesTheConfigurationsTag(t *testing.T) {
	t.Parallel()
	w := follows(t, policy.Rule{Updates: tags.Revision})
	w.Policy.Rule = func(string) policy.Rule { return policy.Rule{Updates: tags.Revision, Follow: "4.0.0-rev7"} }
	w.restart()
	w.Node.PutPodManifest("other.yaml", podYAML("other", "other="+velum+":4.0.0-rev7"))
	s := w.check()
	assert.Equal(t, status.StateFailed, s.State)
	assert.Contains(t, s.Reason, "other.yaml: the followed tag is not found, and as far as is known it never was there", "its own tag")
	assert.Contains(t, s.Reason, "velum.yaml: the tag that the configuration follows is not there (follow: 4.0.0-rev7)")
	w.Policy.Rule = nil
	w.restart()
	w.Registry.Retract(velum, "4.0.0-rev1")
	assert.Contains(t, w.check().Reason, "the followed tag is gone")
}

// kubelet has the pod manifest, and nothing of it has started yet.
func TestNewPodWaitsWhereAllReleasesAreRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Registry.Release(velum, "4.0.0", 1, "1.1")
	w.Policy.Rule = func(string) policy.Rule { return policy.Rule{Updates: tags.Revision, Deny: []string{"*"}} }
	w.Node.SetKubelet(false)
	w.Node.PutTemplate("velum.yaml", podYAML("velum", "velum="+velum+":4.0.0-rev1"))
	w.Node.PutPodManifest("velum.yaml", rendered("velum", "velum="+velum+":4.0.0-rev1"))
	s := w.check()
	assert.True(t, held(s, "velum.yaml", status.HoldWithheld), s.Reason)
}

// A tag pulled by hand: the node has what runs, but not by this name.
func TestRestartOfARefusedImageOnTheNodeIsHeld(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{manifests.PullAlways, manifests.PullIfNotPresent} {
		w := newWorld(t)
		w.Policy.PullPolicy = policy
		w.Registry.PublishBuild(velum, built("one", april, ""), "stable")
		w.Registry.Release(mariadb, "10.0", 1, "1.1")
		w.Node.PutTemplate("velum.yaml", podYAML("velum", "a="+velum+":stable", "b="+mariadb+":10.0-rev1"))
		require.Equal(t, status.StateCurrent, w.check().State)
		w.Registry.PublishBuild(velum, built("y", april.Add(-time.Hour), ""), "stable")
		w.Registry.Release(mariadb, "10.0", 2, "1.1")
		_, err := w.Node.Pull(t.Context(), release.Reference{Repository: velum, Tag: "stable"})
		require.NoError(t, err)
		s := w.check()
		assert.True(t, held(s, "velum.yaml", status.HoldRefused), s.Reason)
		w.idle()
	}
}

// Copied by hand from the template, the placeholder is no tag to stay on.
func TestPlaceholderIsNotWhatRuns(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Registry.Release(velum, "4.0.0", 1, "1.1")
	w.Node.PutTemplate("velum.yaml", podYAML("velum", "velum="+velum+":__TAG__"))
	require.Equal(t, status.StateCurrent, w.check().State)
	w.Node.PutPodManifest("velum.yaml", podYAML("velum", "velum="+velum+":__TAG__"))
	w.Node.Forget()
	w.Registry.Release(velum, "4.0.0", 1, "1.2")
	w.Policy.Rule = func(string) policy.Rule { return policy.Rule{Updates: tags.Revision, Deny: []string{"*"}} }
	w.restart()
	s := w.check()
	assert.True(t, held(s, "velum.yaml", status.HoldWithheld), s.Reason)
	assert.Empty(t, w.Node.WaitingFile("velum.yaml"))
}

// One question waits for this node's time, another needs the same image now.
func TestSpreadDoesNotDelayAnImageThatKubeletPulls(t *testing.T) {
	t.Parallel()
	for name, pulled := range map[string]func(w *world){
		"for a new pod": func(w *world) { w.Node.PutTemplate("two.yaml", podYAML("two", "two="+velum+":4.0.0-rev1")) },
		"by kubelet":    func(w *world) { w.Node.Restart("velum.yaml", "velum") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, _ := running(t)
			w.Policy.StageDelay = time.Hour
			w.restart()
			next := w.Registry.Release(velum, "4.0.0", 1, "1.2")
			w.Node.PutTemplate("velum.yaml", append(podYAML("velum", "velum="+velum+":__TAG__"), "  hostNetwork: true\n"...))
			pulled(w)
			s := w.poll()
			assert.True(t, w.Node.Pinned(velum, next.Digest))
			assert.NotEmpty(t, w.Node.WaitingFile("velum.yaml"), s.Reason)
			w.idle()
		})
	}
}

func TestSpreadEndsForAllQuestionsOfAnImageAtOnce(t *testing.T) {
	t.Parallel()
	w := follows(t, policy.Rule{Updates: tags.Revision})
	w.Policy.StageDelay = time.Hour
	w.restart()
	w.Node.PutPodManifest("two.yaml", rendered("two", "two="+velum+":4.0.0-rev1-build1.5"))
	next := w.Registry.PublishBuild(velum, built("x", april.Add(time.Hour), ""), "4.0.0-rev1", "4.0.0-rev1-build1.6")
	w.poll()
	w.Clock.Add(30 * time.Minute)
	w.Node.PutTemplate("two.yaml", podYAML("two", "two="+velum+":4.0.0-rev1-build1.5"))
	w.poll()
	require.Empty(t, w.Node.Names(next.Digest))
	w.Clock.Add(30 * time.Minute)
	w.observe()
	assert.NotEmpty(t, w.Node.WaitingFile("two.yaml"))
	w.idle()
}

// The rule came after the answer: no source is asked, and the next best release is offered.
func TestNewRuleAppliesToAnEarlierAnswer(t *testing.T) {
	t.Parallel()
	w := follows(t, policy.Rule{Updates: tags.Revision})
	rebuilt := w.Registry.PublishBuild(velum, built("x", april.Add(time.Hour), ""), "4.0.0-rev1", "4.0.0-rev1-build1.6")
	w.Registry.PublishBuild(velum, built("y", april.Add(2*time.Hour), ""), "4.0.0-rev2", "4.0.0-rev2-build1.1")
	w.Grain.SetBusy("busy")
	w.Node.PutTemplate("new.yaml", podYAML("new", "new="+velum+":4.0.0-rev1"))
	w.check()
	w.Policy.Rule = func(string) policy.Rule { return policy.Rule{Updates: tags.Revision, Deny: []string{"4.0.0-rev2"}} }
	w.restart()
	s := w.observe()
	require.NotNil(t, image(s, "velum.yaml", "velum").Offered)
	assert.Equal(t, rebuilt.Digest, image(s, "velum.yaml", "velum").Offered.Digest)
	require.NotEmpty(t, image(s, "new.yaml", "new").Refused)
	assert.Equal(t, policy.RuleDeny, image(s, "new.yaml", "new").Refused[0].Rule)
	w.Registry.Counts()
	w.poll()
	assert.Equal(t, 1, w.Registry.Counts().Heads, "what is refused by its name is not asked for")
	limit, err := tags.Parse("4.0.0-rev1")
	require.NoError(t, err)
	w.Policy.Rule = func(string) policy.Rule { return policy.Rule{Updates: tags.Revision, Max: limit} }
	w.restart()
	w.poll()
	assert.Equal(t, 1, w.Registry.Counts().Heads)
}

// A new pod that may take any release takes the newest that is not refused.
func TestNewPodStartsWithTheNewestAllowedRelease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		second := w.Registry.Release(velum, "4.0.0", 2, "2.1")
		third := w.Registry.Release(velum, "4.0.0", 3, "3.1")
		w.Policy.Rule = func(string) policy.Rule {
			return policy.Rule{Updates: tags.Revision, Deny: []string{"4.0.0-rev3"}}
		}
		w.Node.PutTemplate("velum.yaml", podYAML("velum", "velum="+velum+":__TAG__"))
		w.check()
		w.runs("velum.yaml", "velum", second.Digest)

		// All are refused: it is told which.
		w.Node.PutTemplate("more.yaml", podYAML("more", "more="+velum+":__TAG__"))
		w.Policy.Rule = func(string) policy.Rule { return policy.Rule{Updates: tags.Revision, Deny: []string{"*"}} }
		w.restart()
		s := w.check()
		assert.Contains(t, podOf(s, "more.yaml").Holds[0].Reason, "4.0.0-rev3 refused by deny")
		assert.NotEqual(t, third.Digest, second.Digest)
	})
}

// What did not come up is not what a pod begins with, once its file was deleted.
func TestDeletedPodManifestIsWrittenWithoutADeniedRelease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first := running(t)
		w.bad(2, "2.1")
		w.apply()
		w.Node.PutPodManifest("velum.yaml", nil)
		w.Node.Sync()
		w.observe()
		w.check()
		w.runs("velum.yaml", "velum", first.Digest)
	})
}
