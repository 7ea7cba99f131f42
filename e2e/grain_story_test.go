// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/status"
)

// While another operation owns the node, neither pod manifests nor the grain
// are written; what is new is staged all the same.
func TestOtherOperations(t *testing.T) {
	t.Parallel()
	n := started(t)
	n.WriteFile(templateDir+"two.yaml", podYAML("two", n.Registry.Ref("demo/velum:4.0.0-rev1")))
	for _, grain := range []string{"update_in_progress", "migration_in_progress", "removal_in_progress"} {
		t.Run(grain, func(t *testing.T) {
			n.WriteFile(grainFile, "roles: [admin]\n"+grain+": true\n")
			before := look(t, n, waitingDir)
			s := cycle(t, n, 4)
			assert.Equal(t, status.StateHeld, s.State)
			assert.Contains(t, s.Reason, "the grain "+grain+" is true")
			assert.True(t, imageOf(t, s, "velum.yaml").Staged)
			assert.Equal(t, before.files, look(t, n, waitingDir).files)
			assert.NoFileExists(t, n.Path(manifestDir+"two.yaml"))
		})
	}
	t.Run("ended", func(t *testing.T) {
		n.WriteFile(grainFile, "roles: [admin]\nupdate_in_progress: false\n")
		s := cycle(t, n, 0)
		assert.Equal(t, status.StateStaged, s.State, s.Reason)
		assert.Contains(t, n.ReadFile(grainFile),
			"roles: [admin]\nupdate_in_progress: false\nimage_update_available: true\nimage_update_state: \"staged\"\n")
		assert.FileExists(t, n.Path(manifestDir+"two.yaml"))
	})
}

// The grain says what is staged, keeps its file as it was otherwise, is not
// written again without need, and is set again after others rewrote the file.
func TestGrain(t *testing.T) {
	t.Parallel()
	n := started(t)
	foreign := "# ours\r\nroles: [ 'admin' ]   # x\r\nimage_update_available: false\r\nlast: \"1\""
	n.WriteFile(grainFile, foreign)
	require.NoError(t, os.Chmod(n.Path(grainFile), 0o640))
	require.NoError(t, os.Chown(n.Path(grainFile), 0, 4711))
	s := cycle(t, n, 0)
	assert.Equal(t, status.StateStaged, s.State, s.Reason)
	grain := n.ReadFile(grainFile)
	velum := imageOf(t, s, "velum.yaml")
	for _, line := range []string{
		"# ours\r\nroles: [ 'admin' ]   # x\r\nimage_update_available: true\r\nlast: \"1\"\r\n",
		"image_update_state: \"staged\"\r\n", "image_update_count: 1\r\n",
		"- image: \"" + velum.Image + "\"\r\n", "  change: \"revision\"\r\n",
		"  from: \"4.0.0-rev1\"\r\n", "  to: \"4.0.0-rev2-build1.1\"\r\n",
		"  digest: \"" + velum.Offered.Digest.String() + "\"\r\n",
	} {
		assert.Contains(t, grain, line)
	}
	info, err := os.Stat(n.Path(grainFile))
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o640), info.Mode())

	before := look(t, n)
	cycle(t, n, 0)
	before.unchanged(t, n)

	// Salt writes back what it had read before, in its own style.
	n.WriteFile(grainFile, "last: '1'\nroles:\n- admin\n")
	cycle(t, n, 0)
	again := n.ReadFile(grainFile)
	assert.True(t, strings.HasPrefix(again, "last: '1'\nroles:\n- admin\nimage_update_available: true\n"), again)

	require.NoError(t, os.RemoveAll(n.Path("etc/salt")))
	cycle(t, n, 0)
	assert.NoDirExists(t, n.Path("etc/salt"), "a node without Salt stays one")
}
