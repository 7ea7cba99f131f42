// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/agenttest"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/source"
	"github.com/kubic-project/image-update-agent/tags"
)

// manyTags is a registry whose repositories have 90,000 tags each.
type manyTags struct{ source.Source }

func (m manyTags) Tags(ctx context.Context, repository string) ([]string, error) {
	names, err := m.Source.Tags(ctx, repository)
	for n := range 90_000 {
		names = append(names, fmt.Sprintf("3.0.%d-rev1-build1.%d", n, n))
	}
	return names, err
}

// BenchmarkMemoryOfLists measures the peak memory of a round that lists twelve repositories.
func BenchmarkMemoryOfLists(b *testing.B) {
	w := agenttest.NewWorld()
	w.Policy.Rule = func(string) policy.Rule { return policy.Rule{Updates: tags.Revision} }
	var containers []string
	for n := range 12 {
		repository := fmt.Sprintf("registry.suse.com/caasp/v4/r%d", n)
		w.Registry.Release(repository, "4.0.0", 1, "1.1")
		containers = append(containers, fmt.Sprintf("c%d=%s:4.0.0-rev1", n, repository))
	}
	w.Node.PutTemplate("many.yaml", podYAML("many", containers...))
	a := w.Agent()
	a.Source = manyTags{a.Source}
	agenttest.PeakMemory(b, func() {
		_, err := a.Cycle(b.Context(), source.PollAll)
		require.NoError(b, err)
	})
}
