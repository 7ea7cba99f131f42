// SPDX-License-Identifier: Apache-2.0

package localregistry

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/localregistry"
	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
	"github.com/kubic-project/image-update-agent/internal/registry/registryhost"
	"github.com/kubic-project/image-update-agent/internal/registry/registryhost/answer"
)

// TestPullsFromTheLocalRegistry checks that containerd pulls a tag from the local registry if its registry is away and
// the node has the image. As fallback, the local registry gets no request while upstream answers; as gate, it serves
// the approved digest, whatever the tag names upstream. Disabling it restores the admin's file.
func TestPullsFromTheLocalRegistry(t *testing.T) {
	t.Parallel()
	for _, version := range node.Containerds() {
		t.Run("containerd "+string(version), func(t *testing.T) {
			t.Parallel()
			n := node.Start(t, node.Options{Containerd: version})
			n.WriteHosts(story.LocalRegistryRegistry, n.Registry)
			admins := n.ReadFile(story.LocalRegistryFile)
			n.Registry.Publish("demo/velum", "4.0.0-rev1-build1.1", node.Image{Answer: "one"})
			store := registryhost.NewStore(n.Path("var/lib/image-update-agent"))
			require.NoError(t, store.Save(t.Context(), localregistry.Table{Entries: []localregistry.Entry{
				story.EntryOf(t, n.Registry, "demo/velum", "4.0.0-rev1"),
			}}))
			pulls := func() (string, error) { return n.CRI().Pull(story.LocalRegistryImage) }
			first, err := pulls()
			require.NoError(t, err)

			n.Registry.Down()
			_, err = pulls()
			require.Error(t, err, "without the local registry the registry is needed")
			answers := answerAsLocalRegistry(t, n, story.LocalRegistryRegistry)
			story.LocalRegistryVerb(t, n, 0, "enable", story.LocalRegistryRegistry, "--write")
			again, err := pulls()
			require.NoError(t, err, "the next pull reads hosts.toml")
			assert.Equal(t, first, again)
			answered := answers()
			assert.Equal(t, 1, answered.Served)
			assert.Contains(t, answered.Last, story.LocalRegistryImage)
			_, err = n.CRI().Pull(story.LocalRegistryRegistry + "/demo/velum:4.0.0-rev2")
			require.Error(t, err, "what is not in the table is not answered")
			require.ErrorContains(t, err, "refused", "the error is that of upstream")

			n.Registry.Up()
			n.Registry.Publish("demo/velum", "4.0.0-rev1-build1.2", node.Image{Answer: "two"})
			before := answers()
			moved, err := pulls()
			require.NoError(t, err)
			assert.NotEqual(t, first, moved, "the fallback leaves upstream the word")
			assert.Equal(t, before, answers())

			story.LocalRegistryVerb(t, n, 0, "enable", story.LocalRegistryRegistry, "--gate", "--write")
			n.Registry.Forget()
			approved, err := pulls()
			require.NoError(t, err)
			assert.Equal(t, first, approved, "the gate answers with the approved digest")
			assert.Empty(t, n.Registry.Requests())

			story.LocalRegistryVerb(t, n, 0, "disable", story.LocalRegistryRegistry, "--write")
			assert.Equal(t, admins, n.ReadFile(story.LocalRegistryFile))
			story.LocalRegistryVerb(t, n, 3, "show", story.LocalRegistryRegistry)
			upstreams, err := pulls()
			require.NoError(t, err)
			assert.Equal(t, moved, upstreams)
		})
	}
}

// answerAsLocalRegistry starts the local registry of a node for the names and the node's own registry. It returns the
// requests so far.
func answerAsLocalRegistry(t *testing.T, n *node.Node, names ...string) (answers func() localregistry.Journal) {
	t.Helper()
	n.LocalRegistry(names...)
	journal := registryhost.AnswersAt(n.Path("run/image-update-agent-local-registry/" + answer.JournalFile))
	return func() localregistry.Journal {
		got, err := journal()
		require.NoError(t, err)
		return got
	}
}
