// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/tags"
)

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
