// SPDX-License-Identifier: Apache-2.0

//go:build soak

package fleet_test

import (
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/agenttest"
	"github.com/kubic-project/image-update-agent/agent/fleet"
	"github.com/kubic-project/image-update-agent/e2e/story"
	"github.com/kubic-project/image-update-agent/internal/fleet/kubelease"
	"github.com/kubic-project/image-update-agent/internal/registry/registrytest"
)

// The lock in a Lease of a real API server, with the port's conformance tests; then what people do to the Lease, and an
// API server that restarts.
func TestLeaseOfARealAPIServer(t *testing.T) {
	t.Parallel()
	api := story.StartAPIServer(t, story.StartEtcd(t), "image-update-agent")
	agenttest.TestFleetLock(t, func(id string) fleet.Locker { return leaseOf(t, api, id) })

	page := story.Checkout(t) + "/docs/fleets.md"
	a, b := leaseOf(t, api, "node-a"), leaseOf(t, api, "node-b")
	refused := func(want string) {
		t.Helper()
		_, err := b.Lock(t.Context())
		e := &fleet.LockError{}
		require.ErrorAs(t, err, &e)
		assert.True(t, e.IsTaken())
		require.ErrorContains(t, err, want)
	}
	_, err := a.Lock(t.Context())
	require.NoError(t, err)
	refused("Lease " + leaseName + ": held by node-a since ")
	refused(", which is no node of the cluster")
	code, said := api.Ask(http.MethodPost, "/api/v1/nodes", `{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-a"}}`)
	require.Equal(t, http.StatusCreated, code, said)
	h, err := b.Read(t.Context())
	require.NoError(t, err)
	assert.False(t, h.Gone)

	// The page's command frees it, and a person holds the fleet.
	patch := regexp.MustCompile(`patch lease image-update-agent --type merge -p '(.*)'`).FindStringSubmatch(registrytest.Text(t, page))
	require.NotNil(t, patch)
	code, said = api.Ask(http.MethodPatch, leasePath, patch[1])
	require.Equal(t, http.StatusOK, code, said)
	require.ErrorIs(t, a.Unlock(t.Context()), fleet.ErrLost)
	_, err = b.Lock(t.Context())
	require.NoError(t, err)
	require.NoError(t, b.Unlock(t.Context()))
	code, said = api.Ask(http.MethodPatch, leasePath, `{"spec": {"holderIdentity": "Alice moves the cluster"}}`)
	require.Equal(t, http.StatusOK, code, said)
	refused(": held by Alice moves the cluster")
	code, said = api.Ask(http.MethodDelete, leasePath, "")
	require.Equal(t, http.StatusOK, code, said)
	require.ErrorIs(t, b.Unlock(t.Context()), fleet.ErrLost)

	// The API server restarts meanwhile: the lock stays, and its release waits.
	_, err = a.Lock(t.Context())
	require.NoError(t, err)
	api.Kill()
	_, err = b.Lock(t.Context())
	require.ErrorContains(t, err, "connection refused")
	released := make(chan error, 1)
	patient := leaseOf(t, api, "node-a", func(o *kubelease.Options) { o.Patience = story.Ready })
	go func() { released <- patient.Unlock(t.Context()) }()
	api.Start()
	require.NoError(t, <-released)
	_, err = b.Lock(t.Context())
	require.NoError(t, err)
	require.NoError(t, b.Unlock(t.Context()))
}

// The Role on the page is sufficient and necessary, and the API server's refusals name what is missing.
func TestTheRoleOfThePage(t *testing.T) {
	t.Parallel()
	api := story.StartAPIServer(t, story.StartEtcd(t), "image-update-agent")
	text, err := os.ReadFile(filepath.Join(story.Checkout(t), "docs/fleets.md"))
	require.NoError(t, err)
	role := regexp.MustCompile("(?s)```yaml\n(apiVersion: rbac.*?)```").FindSubmatch(text)
	require.NotNil(t, role)
	const rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/kube-system/"
	code, said := api.Ask(http.MethodPost, rbac+"rolebindings", `{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
		"metadata": {"name": "image-update-agent"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "image-update-agent"},
		"subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "image-update-agent"}]}`)
	require.Equal(t, http.StatusCreated, code, said)
	c := leaseOf(t, api, "node-a", func(o *kubelease.Options) { o.Kubeconfig = api.Kubeconfig("image-update-agent") })
	verbs := regexp.MustCompile(`verbs: \[(.*?)\]`)
	for _, missing := range []string{"get", "create", "update", ""} {
		given := verbs.ReplaceAllStringFunc(string(role[1]), func(list string) string {
			words := strings.Split(verbs.FindStringSubmatch(list)[1], ", ")
			words = slices.DeleteFunc(words, func(verb string) bool { return verb == missing })
			return "verbs: [" + strings.Join(append(words, "list"), ", ") + "]"
		})
		if missing != "get" {
			code, said = api.Ask(http.MethodDelete, rbac+"roles/image-update-agent", "")
			require.Equal(t, http.StatusOK, code, said)
		}
		code, said = api.Ask(http.MethodPost, rbac+"roles", given)
		require.Equal(t, http.StatusCreated, code, said)
		var err error
		require.Eventually(t, func() bool { // the authorizer learns of a Role a moment later
			_, err = c.Lock(t.Context())
			return (err == nil) == (missing == "") && (err == nil || strings.Contains(err.Error(), "cannot "+missing+" resource"))
		}, story.Ready, 50*time.Millisecond, "%s: %v", missing, err)
		if missing != "" {
			assert.Contains(t, err.Error(), `403: leases.coordination.k8s.io`)
			assert.Contains(t, err.Error(), `User "image-update-agent" cannot `+missing+` resource "leases"`)
			assert.Contains(t, err.Error(), `in the namespace "kube-system"`)
		}
	}
	require.NoError(t, c.Unlock(t.Context()))
}
