// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/tags"
)

// controlPlane is a node that runs an API server of 1.34, two clients of it and something
// else. It is offered the next minor version of all but one of the clients.
func controlPlane(t *testing.T, auto bool) (*world, map[string]release.Release) {
	t.Helper()
	w := newWorld(t)
	w.Policy.Rule = func(string) policy.Rule { return policy.Rule{Updates: tags.Minor} }
	w.Policy.Manage = map[string]bool{"kube-apiserver.yaml": true}
	w.Policy.Auto = auto
	versions := map[string]string{
		"kube-apiserver": "1.35.0", "kube-controller-manager": "1.34.1", "kube-scheduler": "1.35.0", "mariadb": "1.35.0",
	}
	for name := range versions {
		repository := "registry.suse.com/caasp/v4/" + name
		w.Registry.Release(repository, "1.34.0", 1, "1.1")
		w.Node.PutTemplate(name+".yaml", podYAML(name, "beside="+velum+":4.0.0-rev1", "main="+repository+":1.34.0"))
		w.Node.PutPodManifest(name+".yaml", rendered(name, "beside="+velum+":4.0.0-rev1", "main="+repository+":1.34.0-rev1"))
	}
	w.Registry.Release(velum, "4.0.0", 1, "1.1")
	w.Node.Sync()
	s := w.check()
	require.Equal(t, status.StateCurrent, s.State, s.Reason)
	next := map[string]release.Release{}
	for name, version := range versions {
		next[name] = w.Registry.Release("registry.suse.com/caasp/v4/"+name, version, 1, "1.1")
	}
	return w, next
}

// Nor is it applied after one that did not come up. What else did not come up does not
// matter.
func TestClientIsNotAppliedAfterAFailedAPIServer(t *testing.T) {
	t.Parallel()
	all := []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler", "mariadb"}
	for fails, held := range map[string]string{"kube-apiserver": "kube-scheduler", "mariadb": ""} {
		t.Run(fails, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w, next := controlPlane(t, false)
				s := w.check()
				require.Equal(t, status.StateStaged, s.State, s.Reason)
				w.Node.Crash(next[fails].Digest, true)
				out, _ := w.apply()
				want := []status.Result{}
				for _, name := range all {
					switch name {
					case fails:
						want = append(want, status.ResultFailed)
					case held:
						want = append(want, status.ResultHeld)
					default:
						want = append(want, status.ResultApplied)
					}
				}
				got := []status.Result{}
				for _, o := range out {
					got = append(got, o.Result)
				}
				assert.Equal(t, want, got)
			})
		})
	}
}
