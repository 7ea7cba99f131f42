// SPDX-License-Identifier: Apache-2.0

package ownhost

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/ownhost"
	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
	"github.com/kubic-project/image-update-agent/internal/localhost"
)

// With the own host containerd pulls a tag whose image it has although nobody answers for its registry. As fallback it
// is not asked while upstream answers; as gate the approved digest counts, whatever the tag names. Disabling restores
// the admin's file.
func TestPullsFromTheOwnHost(t *testing.T) {
	t.Parallel()
	for _, version := range story.Containerds {
		t.Run("containerd "+string(version), func(t *testing.T) {
			t.Parallel()
			n := node.Start(t, node.Options{Containerd: version})
			n.WriteHosts(story.OwnHostRegistry, n.Registry)
			admins := n.ReadFile(story.OwnHostFile)
			n.Registry.Publish("demo/velum", "4.0.0-rev1-build1.1", node.Image{Answer: "one"})
			store := localhost.NewStore(n.Path("var/lib/image-update-agent"))
			require.NoError(t, store.Save(t.Context(), ownhost.Table{Entries: []ownhost.Entry{
				story.EntryOf(t, n.Registry, "demo/velum", "4.0.0-rev1"),
			}}))
			pulls := func() (string, error) { return n.CRI().Pull(story.OwnHostImage) }
			first, err := pulls()
			require.NoError(t, err)

			n.Registry.Down()
			_, err = pulls()
			require.Error(t, err, "without the own host the registry is needed")
			answers := answerAsOwnHost(t, n, story.OwnHostRegistry)
			story.OwnHostVerb(t, n, 0, "enable", story.OwnHostRegistry, "--write")
			again, err := pulls()
			require.NoError(t, err, "the next pull reads hosts.toml")
			assert.Equal(t, first, again)
			answered := answers()
			assert.Equal(t, 1, answered.Served)
			assert.Contains(t, answered.Last, story.OwnHostImage)
			_, err = n.CRI().Pull(story.OwnHostRegistry + "/demo/velum:4.0.0-rev2")
			require.Error(t, err, "what is not in the table is not answered")
			require.ErrorContains(t, err, "refused", "the error is that of upstream")

			n.Registry.Up()
			n.Registry.Publish("demo/velum", "4.0.0-rev1-build1.2", node.Image{Answer: "two"})
			before := answers()
			moved, err := pulls()
			require.NoError(t, err)
			assert.NotEqual(t, first, moved, "the fallback leaves upstream the word")
			assert.Equal(t, before, answers())

			story.OwnHostVerb(t, n, 0, "enable", story.OwnHostRegistry, "--gate", "--write")
			n.Registry.Forget()
			approved, err := pulls()
			require.NoError(t, err)
			assert.Equal(t, first, approved, "the gate answers with the approved digest")
			assert.Empty(t, n.Registry.Requests())

			story.OwnHostVerb(t, n, 0, "disable", story.OwnHostRegistry, "--write")
			assert.Equal(t, admins, n.ReadFile(story.OwnHostFile))
			story.OwnHostVerb(t, n, 3, "show", story.OwnHostRegistry)
			upstreams, err := pulls()
			require.NoError(t, err)
			assert.Equal(t, moved, upstreams)
		})
	}
}

// answerAsOwnHost starts the own host of a node, for images of its registry and of the names. It returns what was
// answered so far.
func answerAsOwnHost(t *testing.T, n *node.Node, names ...string) (answers func() localhost.Answers) {
	t.Helper()
	n.OwnHost(names...)
	journal := localhost.AnswersAt(n.Path("run/image-update-agent-localhost/" + localhost.AnswersFile))
	return func() localhost.Answers {
		got, _, err := journal.Get()
		require.NoError(t, err)
		return got
	}
}
