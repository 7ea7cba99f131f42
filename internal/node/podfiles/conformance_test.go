// SPDX-License-Identifier: Apache-2.0

package podfiles

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/agenttest"
)

func TestFilesConform(t *testing.T) {
	t.Parallel()
	agenttest.TestPodFiles(t, underTest)
}

func underTest(t *testing.T) agenttest.FilesUnderTest {
	t.Helper()
	root := t.TempDir()
	d := Dirs{
		Templates:    filepath.Join(root, "templates"),
		PodManifests: filepath.Join(root, "manifests"),
		Rendered:     filepath.Join(root, "rendered"),
	}
	require.NoError(t, os.Mkdir(d.Templates, 0o755))
	require.NoError(t, os.Mkdir(d.PodManifests, 0o755))
	put := func(dir string) func(*testing.T, string, []byte) {
		return func(t *testing.T, name string, data []byte) {
			t.Helper()
			path := filepath.Join(dir, name)
			if data == nil {
				require.NoError(t, os.Remove(path))
				return
			}
			require.NoError(t, os.WriteFile(path, data, 0o600))
		}
	}
	files := New(d)
	return agenttest.FilesUnderTest{
		Files: files, PutTemplate: put(d.Templates), PutPodManifest: put(d.PodManifests),
		PutUnsafe: func(t *testing.T, name string) {
			t.Helper()
			require.NoError(t, os.Symlink("elsewhere", filepath.Join(d.PodManifests, name)))
		},
	}
}
