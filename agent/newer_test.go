// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/tags"
)

// A node of kubeadm: the patch is named although many higher tags are there.
func TestNotAllowedReleaseNamesTheSettingThatAllowsIt(t *testing.T) {
	t.Parallel()
	for updates, want := range map[tags.Change][]status.NotAllowed{
		tags.Same: {
			{Image: velum, Tag: "v2.0.0", Rule: policy.RuleUpdates, Key: "updates: major"},
			{Image: velum, Tag: "v1.36.19", Rule: policy.RuleUpdates, Key: "updates: minor"},
			{Image: velum, Tag: "v1.34.1", Rule: policy.RuleUpdates, Key: "updates: patch"},
		},
		tags.Patch: {
			{Image: velum, Tag: "v2.0.0", Rule: policy.RuleUpdates, Key: "updates: major"},
			{Image: velum, Tag: "v1.36.19", Rule: policy.RuleUpdates, Key: "updates: minor"},
		},
		tags.Major: {},
	} {
		t.Run(updates.String(), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.Policy.Rule = func(string) policy.Rule { return policy.Rule{Updates: updates} }
			w.Registry.Publish(velum, "v1.34.0")
			w.Node.PutPodManifest("velum.yaml", podYAML("velum", "velum="+velum+":v1.34.0"))
			w.Node.Sync()
			w.Registry.Publish(velum, "v1.34.1")
			for patch := range 20 {
				w.Registry.Publish(velum, fmt.Sprintf("v1.36.%d", patch))
			}
			w.Registry.Publish(velum, "v2.0.0")
			s := w.check()
			assert.Equal(t, want, s.NotAllowed)
			assert.Equal(t, want, append([]status.NotAllowed{}, w.Grain.Last().NotAllowed...))
			assert.Len(t, image(s, "velum.yaml", "velum").NotAllowed, len(want))
			if updates == tags.Same {
				assert.Equal(t, status.StateCurrent, s.State)
				assert.Contains(t, s.Reason, "newer, not allowed: velum v2.0.0 (updates), ")
			}
		})
	}
}

// What runs is not newer than itself, whatever denies it.
func TestRunningReleaseIsNotNewer(t *testing.T) {
	t.Parallel()
	w, _ := running(t)
	w.obey(policy.Rule{Updates: tags.Revision, Deny: []string{"*"}})
	assert.Empty(t, w.observe().NotAllowed)
}
