// SPDX-License-Identifier: Apache-2.0

package fleet_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/fleet"
	"github.com/kubic-project/image-update-agent/agent/node"
	rig "github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
	"github.com/kubic-project/image-update-agent/internal/quorum"
	"github.com/kubic-project/image-update-agent/internal/registry/registrytest"
)

// Members of a real etcd that speaks https and wants client certificates, found by the flags of one member's own pod
// manifest.
func TestQuorumOfEtcd(t *testing.T) {
	t.Parallel()
	ca, cert, key := registrytest.Certificate(t)
	flags := []string{"--trusted-ca-file=" + ca, "--cert-file=" + cert, "--key-file=" + key}
	cluster := story.StartEtcd(t, append(flags, "--client-cert-auth=true")...)
	own := func(m *story.EtcdMember, metrics bool) []node.PodFile {
		text := "apiVersion: v1\nkind: Pod\nmetadata: {name: etcd}\nspec:\n  containers:\n  - name: etcd\n    command:\n    - etcd\n    - --name=" + m.Name +
			"\n    - --listen-client-urls=" + m.Client + "\n"
		if metrics {
			text += "    - --listen-metrics-urls=" + m.Metrics + "\n"
		}
		for _, f := range flags {
			text += "    - " + f + "\n"
		}
		return []node.PodFile{{Name: "etcd.yaml", Data: []byte(text)}}
	}
	a, b, c := cluster.Members[0], cluster.Members[1], cluster.Members[2]
	for _, metrics := range []bool{true, false} {
		seen := quorum.Control{}.Observe(t.Context(), own(a, metrics))
		require.NoError(t, seen.Err)
		assert.ElementsMatch(t, []fleet.Part{
			{Name: "etcd member a", Local: true, Healthy: true}, {Name: "etcd member b", Healthy: true}, {Name: "etcd member c", Healthy: true},
		}, seen.Members)
		assert.Empty(t, fleet.Against(seen, false))
	}
	b.Kill()
	var against string
	rig.Eventually(t, "b is down", story.Ready, func() error {
		against = fleet.Against(quorum.Control{}.Observe(t.Context(), own(a, true)), false)
		if !strings.HasPrefix(against, "etcd member b: ") {
			return errors.New(against)
		}
		return nil
	})
	assert.Contains(t, against, "connection refused")
	assert.NotContains(t, against, "member c")
	seen := quorum.Control{}.Observe(t.Context(), own(b, true))
	assert.NotEmpty(t, fleet.Against(seen, false), "nobody answers on the node of the member that is down")
	c.Kill()
	seen = quorum.Control{}.Observe(t.Context(), own(a, true))
	assert.NotEmpty(t, fleet.Against(seen, false), "without a quorum nothing is stopped")
}
