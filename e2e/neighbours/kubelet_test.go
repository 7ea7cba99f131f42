// SPDX-License-Identifier: Apache-2.0

package neighbours

import (
	"cmp"
	"slices"
	"testing"
)

// kubelet answers with kubelet's own code (tools/modules/kubelet/reads).
type kubelet struct{ *judge }

// kubeletSays is its answer.
type kubeletSays struct {
	Pods   []kubeletPod
	Logins [][]kubeletLogin
	Config kubeletConfig
}

type (
	kubeletPod struct {
		Namespace, Name string
		Containers      []kubeletContainer
	}
	kubeletContainer struct{ Name, Image, Policy string }
	kubeletLogin     struct{ User, Password string }
	kubeletConfig    struct {
		Refused, StaticPodPath, Address string
		ImageGCHigh, ReadOnlyPort       int
	}
)

func startKubelet(t *testing.T, name string) kubelet {
	t.Helper()
	return kubelet{startJudge(t, name, "kubelet-reads", "reads")}
}

func (k kubelet) ask(request map[string]any, dirs ...string) (says kubeletSays) {
	k.t.Helper()
	k.judge.ask(request, &says, input{dirs: dirs})
	return says
}

// settle sorts the pods: kubelet has them in the order of the directory.
func (s *kubeletSays) settle() {
	slices.SortFunc(s.Pods, func(a, b kubeletPod) int { return cmp.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name) })
}
