// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/kubic-project/image-update-agent/agent/policy"
)

// The API server's clients may be older than it, and must not be newer.
func TestAPIServerGoesBeforeItsClientsOnAMinorChange(t *testing.T) {
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
