// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/record"
)

// The pod velum-db, whose file has just gone, still has a container of the name that the pod velum has, too.
func TestNodeNameTellsPodsApart(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		node, criPod string
		runs         bool
	}{
		{"", "velum-node1", true},
		{"", "velum-db-node1", true}, // it may be the pod velum of the node db-node1
		{"node1", "velum-node1", true},
		{"node1", "velum-db-node1", false},
		{"db-node1", "velum-db-node1", true},
		{"elsewhere", "velum-node1", true}, // a wrong name does not hide what runs
	} {
		inv := node.Inventory{
			NodeName:     c.node,
			PodManifests: []node.PodFile{{Name: "velum.yaml", Data: podYAML("velum", "velum="+velum+":4.0.0-rev1")}},
			Containers: []node.Container{
				{ID: "1", Pod: c.criPod, Namespace: "default", Name: "velum", Running: true, Image: "sha256:1"},
			},
		}
		plan := plan.Decide(inv, nil, record.Record{}, policy.Policy{}, time.Time{})
		require.Len(t, plan.Pods, 1)
		require.NoError(t, plan.Pods[0].Err)
		assert.Equal(t, c.runs, plan.Pods[0].Images[0].Well, "%s on %s", c.criPod, c.node)
	}
}
