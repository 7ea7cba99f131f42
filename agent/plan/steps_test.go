// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"os"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/release"
)

// The clients of the API server may be older than it, but not newer.
func TestAPIServerPrecedesItsClientsOnAMinorChange(t *testing.T) {
	t.Parallel()
	for change, want := range map[string][]string{
		"minor": {"velum", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "etcd"},
		"major": {"velum", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "etcd"},
		"patch": {"kube-controller-manager", "kube-scheduler", "velum", "kube-apiserver", "etcd"},
	} {
		var steps []Step
		for _, pod := range []string{"etcd", "kube-scheduler", "velum", "kube-apiserver", "kube-controller-manager"} {
			steps = append(steps, Step{Do: StepApply, File: pod + ".yaml", Apply: Apply{Pod: pod, Role: pod, Change: change}})
		}
		inOrder(policy.Policy{Order: []string{"kube-scheduler.yml"}}, steps)
		var got []string
		for _, s := range steps {
			got = append(got, s.Apply.Pod)
		}
		assert.Equal(t, want, got, change)
	}
}

// docs/kubeadm.md lists the order of the control plane.
func TestThePageOfKubeadmHasTheOrder(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/kubeadm.md")
	require.NoError(t, err)
	var listed []string
	for _, item := range regexp.MustCompile(`(?m)^\d\. (?:if kube-apiserver [^,]+, )?(.+)$`).FindAllSubmatch(page, -1) {
		listed = append(listed, regexp.MustCompile(`kube-[a-z-]+|etcd`).FindAllString(string(item[1]), -1)...)
	}
	steps := make([]Step, len(listed))
	for n, pod := range listed {
		steps[len(listed)-1-n] = Step{Do: StepApply, File: pod + ".yaml", Apply: Apply{Pod: pod, Role: pod, Change: "minor"}}
	}
	inOrder(policy.Policy{}, steps)
	var got []string
	for _, s := range steps {
		got = append(got, s.Apply.Pod)
	}
	assert.Equal(t, got, listed)
	assert.Len(t, listed, 4, "etcd, kube-apiserver and its two clients")
}

func TestWordsForPeople(t *testing.T) {
	t.Parallel()
	r := release.Release{Repository: "r.io/a", Tag: "1.0.0-rev1", Long: "1.0.0-rev1-build1.1", Digest: "sha256:d"}
	for want, step := range map[string]Step{
		"stage r.io/a:1.0.0-rev1-build1.1 (sha256:d)": {Do: StepStage, Release: r},
		"pin 1 images":           {Do: StepPin, Pins: make([]release.Pin, 1)},
		"apply a.yaml (rebuild)": {Do: StepApply, File: "a.yaml", Apply: Apply{Change: "rebuild"}},
		"write a.yaml":           {Do: StepWrite, File: "a.yaml"},
	} {
		assert.Equal(t, want, step.String())
	}
}
