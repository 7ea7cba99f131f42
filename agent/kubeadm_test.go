// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/source"
	"github.com/kubic-project/image-update-agent/tags"
)

const scheduler = "registry.k8s.io/kube-scheduler"

// kubeadmPod is a pod manifest of the scheduler with the labels that kubeadm writes.
func kubeadmPod(tag string) []byte {
	labels := "  namespace: kube-system\n  labels: {component: kube-scheduler, tier: control-plane}\nspec:"
	text := string(podYAML("kube-scheduler", "kube-scheduler="+scheduler+":"+tag, "beside="+scheduler+"-proxy:"+tag))
	return []byte(strings.Replace(text, "spec:", labels, 1))
}

// A new tag is no kubeadm upgrade: the newest patch is offered, however many minor
// versions stand above it, unless allow names one. A pod manifest with a template, and
// a container of somebody else in the pod, go by `updates` alone.
func TestMinorVersionOfAControlPlaneOfKubeadmIsRefused(t *testing.T) {
	t.Parallel()
	refused := []policy.Refusal{{
		Tag: "v1.36.29", Rule: policy.RuleKubeadm, Key: "allow",
		Reason: "minor of a control plane that kubeadm owns: use kubeadm upgrade, or allow: [v1.36.29]",
	}}
	for name, c := range map[string]struct {
		rule     policy.Rule
		template bool
		want     string
		refused  []policy.Refusal
	}{
		"minor":           {rule: policy.Rule{Updates: tags.Minor}, want: "v1.34.9", refused: refused},
		"patch":           {rule: policy.Rule{Updates: tags.Patch}, want: "v1.34.9", refused: refused},
		"a template":      {rule: policy.Rule{Updates: tags.Minor}, template: true, want: "v1.36.29", refused: []policy.Refusal{}},
		"allowed":         {rule: policy.Rule{Updates: tags.Minor, Allow: []string{"v1.35.*"}}, want: "v1.35.0"},
		"patches allowed": {rule: policy.Rule{Updates: tags.Minor, Allow: []string{"v1.34.*"}}, want: "v1.34.9", refused: refused},
		"followed": {
			rule: policy.Rule{Updates: tags.Patch, Follow: "v1.35.0"},
			refused: []policy.Refusal{{
				Tag: "v1.36.29", Rule: policy.RuleKubeadm, Key: "allow", Reason: refused[0].Reason,
			}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.Policy.Rule = func(string) policy.Rule { return c.rule }
			w.Policy.Manage = map[string]bool{"kube-scheduler.yaml": true}
			for _, r := range []string{scheduler, scheduler + "-proxy"} {
				w.Registry.Publish(r, "v1.34.0")
			}
			w.Node.PutPodManifest("kube-scheduler.yaml", kubeadmPod("v1.34.0"))
			if c.template {
				w.Node.PutTemplate("kube-scheduler.yaml", kubeadmPod("v1.34.0"))
			}
			w.Node.Sync()
			for _, r := range []string{scheduler, scheduler + "-proxy"} {
				for patch := range 10 {
					w.Registry.Publish(r, fmt.Sprintf("v1.34.%d", patch))
				}
				w.Registry.Publish(r, "v1.35.0")
				for patch := range 30 {
					w.Registry.Publish(r, fmt.Sprintf("v1.36.%d", patch))
				}
			}
			for _, poll := range []source.Poll{source.PollAll, source.PollDue} { // the second answer is from the tags that were kept
				i := image(w.cycle(poll), "kube-scheduler.yaml", "kube-scheduler")
				if c.want == "" {
					assert.Nil(t, i.Offered)
				} else {
					require.NotNil(t, i.Offered)
					assert.Equal(t, c.want, i.Offered.Tag)
				}
				if c.refused != nil {
					assert.Equal(t, c.refused, i.NotAllowed)
				}
			}
			if name == "minor" {
				beside := image(w.observe(), "kube-scheduler.yaml", "beside")
				require.NotNil(t, beside.Offered)
				assert.Equal(t, "v1.36.29", beside.Offered.Tag)
			}
		})
	}
}
