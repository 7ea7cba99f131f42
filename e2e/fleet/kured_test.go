// SPDX-License-Identifier: Apache-2.0

package fleet_test

import (
	"net/http"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/e2e/story"
	"github.com/kubic-project/image-update-agent/internal/registry/registrytest"
)

// A real node beside a kured of a real API server: without the DaemonSet, and while no node has its lock, it applies;
// while one has it, or while the node may not read it, it does not. Without an apply, it sends no request.
func TestKuredOfARealAPIServer(t *testing.T) {
	t.Parallel()
	api := story.StartAPIServer(t, story.StartEtcd(t), "stranger")
	n, _, port := story.Running(t, "settle: 0\napplyTimeout: 1m\napply: {kured: kube-system/kured}\n")
	admin := registrytest.Text(t, api.Kubeconfig("admin"))
	n.WriteFile("etc/kubernetes/admin.conf", admin)
	ask := func(method, path, body string, want int) {
		t.Helper()
		code, said := api.Ask(method, "/apis/apps/v1/namespaces/kube-system/daemonsets"+path, body)
		require.Equal(t, want, code, said)
	}
	annotate := func(value string) {
		t.Helper()
		ask(http.MethodPatch, "/kured", `{"metadata": {"annotations": {"weave.works/kured-node-lock": `+value+`}}}`, http.StatusOK)
	}
	held := func(why string) {
		t.Helper()
		r := n.Agent("apply")
		assert.Equal(t, 4, r.Code, r.Stderr)
		assert.Contains(t, r.Stdout, "reboot: "+why)
	}
	applies := func(release string) {
		t.Helper()
		r := n.Agent("apply")
		assert.Zero(t, r.Code, r.Stdout+r.Stderr)
		n.WaitAnswer(port, release)
	}
	update := func(release string) {
		t.Helper()
		story.Rel(n, "demo/velum", release)
		story.Check(t, n)
	}
	update("4.0.0-rev1-build1.2")
	assert.Empty(t, api.Requests(isAgent), "of an idle agent")
	applies("4.0.0-rev1-build1.2")
	asked := api.Requests(isAgent)
	assert.Contains(t, asked, "get /apis/apps/v1/namespaces/kube-system/daemonsets/kured")

	ask(http.MethodPost, "", `{"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "kured"}, "spec": {
		"selector": {"matchLabels": {"name": "kured"}}, "template": {"metadata": {"labels": {"name": "kured"}},
		"spec": {"containers": [{"name": "kured", "image": "kured"}]}}}}`, http.StatusCreated)
	update("4.0.0-rev1-build1.3")
	annotate(`"{\"nodeID\":\"node-2\",\"metadata\":{\"unschedulable\":false},\"created\":\"2026-05-01T12:00:00Z\",\"TTL\":0}"`)
	held("kured reboots node-2")
	story.Diagnosed(t, story.Diagnose(t, n, 0)["kured"], "advice", "kured reboots node-2")
	annotate(`"{\"maxOwners\":2,\"locks\":[{\"nodeID\":\"node-3\",\"created\":\"2020-05-01T12:00:00Z\",\"TTL\":0}]}"`)
	held("kured reboots node-3")
	annotate(`"node-4"`)
	held("lock of kured in DaemonSet kube-system/kured: annotation weave.works/kured-node-lock")
	annotate("null")
	run := func(args string) {
		t.Helper()
		ask(http.MethodPatch, "/kured", `{"metadata": {"annotations": {"example.com/lock": "{\"nodeID\":\"node-5\"}"}}, "spec": {"template":
			{"spec": {"containers": [{"name": "kured", "image": "kured", "args": [`+args+`]}]}}}}`, http.StatusOK)
	}
	run(`"--lock-annotation=example.com/lock"`)
	held("kured reboots node-5")
	run(`"--lock-annotation=$(LOCK)"`)
	held("lock of kured in DaemonSet kube-system/kured: --lock-annotation")
	run("")
	n.WriteFile("etc/kubernetes/admin.conf", registrytest.Text(t, api.Kubeconfig("stranger")))
	held("lock of kured in DaemonSet kube-system/kured at ")
	story.Diagnosed(t, story.Diagnose(t, n, 1)["kured"], "failed", `403: daemonsets.apps "kured" is forbidden`)
	n.WriteFile("etc/kubernetes/admin.conf", admin)
	applies("4.0.0-rev1-build1.3")
	asked = api.Requests(isAgent)
	for range 3 {
		story.Check(t, n)
	}
	assert.True(t, slices.Equal(asked, api.Requests(isAgent)), "an idle agent sends none")
}
