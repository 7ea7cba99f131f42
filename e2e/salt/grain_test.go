// SPDX-License-Identifier: Apache-2.0

package salt

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/e2e/story"
)

// TestOtherOperations checks that the agent writes neither pod manifests nor the grain while another operation owns the
// node; it stages new releases nevertheless.
func TestOtherOperations(t *testing.T) {
	t.Parallel()
	n := story.Started(t)
	n.WriteFile(story.TemplateDir+"two.yaml", story.PodYAML("two", n.Registry.Ref("demo/velum:4.0.0-rev1")))
	for _, grain := range []string{"update_in_progress", "migration_in_progress", "removal_in_progress"} {
		t.Run(grain, func(t *testing.T) {
			n.WriteFile(story.GrainFile, "roles: [admin]\n"+grain+": true\n")
			before := story.Look(t, n, story.WaitingDir)
			s := story.Cycle(t, n, 4)
			assert.Equal(t, status.StateHeld, s.State)
			assert.Contains(t, s.Reason, "the grain "+grain+" is true")
			assert.True(t, story.ImageOf(t, s, "velum.yaml").Staged)
			assert.Equal(t, before.Files, story.Look(t, n, story.WaitingDir).Files)
			assert.NoFileExists(t, n.Path(story.ManifestDir+"two.yaml"))
		})
	}
	t.Run("ended", func(t *testing.T) {
		n.WriteFile(story.GrainFile, "roles: [admin]\nupdate_in_progress: false\n")
		s := story.Cycle(t, n, 0)
		assert.Equal(t, status.StateStaged, s.State, s.Reason)
		assert.Contains(t, n.ReadFile(story.GrainFile),
			"roles: [admin]\nupdate_in_progress: false\nimage_update_available: true\nimage_update_state: \"staged\"\n")
		assert.FileExists(t, n.Path(story.ManifestDir+"two.yaml"))
	})
}

// TestGrain checks that the grain lists staged releases, and that the agent keeps the rest of the file, does not
// rewrite it needlessly, and sets the grain again after another program rewrote the file.
func TestGrain(t *testing.T) {
	t.Parallel()
	n := story.Started(t)
	foreign := "# ours\r\nroles: [ 'admin' ]   # x\r\nimage_update_available: false\r\nlast: \"1\""
	n.WriteFile(story.GrainFile, foreign)
	require.NoError(t, os.Chmod(n.Path(story.GrainFile), 0o640))
	require.NoError(t, os.Chown(n.Path(story.GrainFile), 0, 4711))
	s := story.Cycle(t, n, 0)
	assert.Equal(t, status.StateStaged, s.State, s.Reason)
	grain := n.ReadFile(story.GrainFile)
	velum := story.ImageOf(t, s, "velum.yaml")
	for _, line := range []string{
		"# ours\r\nroles: [ 'admin' ]   # x\r\nimage_update_available: true\r\nlast: \"1\"\r\n",
		"image_update_state: \"staged\"\r\n", "image_update_count: 1\r\n",
		"- image: \"" + velum.Image + "\"\r\n", "  change: \"revision\"\r\n",
		"  from: \"4.0.0-rev1\"\r\n", "  to: \"4.0.0-rev2-build1.1\"\r\n",
		"  digest: \"" + velum.Offered.Digest.String() + "\"\r\n",
	} {
		assert.Contains(t, grain, line)
	}
	info, err := os.Stat(n.Path(story.GrainFile))
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o640), info.Mode())

	before := story.Look(t, n)
	story.Cycle(t, n, 0)
	before.Unchanged(t, n)

	// Salt writes back what it read before, in its own style.
	n.WriteFile(story.GrainFile, "last: '1'\nroles:\n- admin\n")
	story.Cycle(t, n, 0)
	again := n.ReadFile(story.GrainFile)
	assert.True(t, strings.HasPrefix(again, "last: '1'\nroles:\n- admin\nimage_update_available: true\n"), again)

	require.NoError(t, os.RemoveAll(n.Path("etc/salt")))
	story.Cycle(t, n, 0)
	assert.NoDirExists(t, n.Path("etc/salt"), "a node without Salt stays one")
}
