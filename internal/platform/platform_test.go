// SPDX-License-Identifier: Apache-2.0

package platform

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Every platform is detected by its mark, and a node without any mark is of the last one.
func TestDetectFindsThePlatformByItsMark(t *testing.T) {
	t.Parallel()
	for _, p := range All() {
		root := t.TempDir()
		if p.mark != "" {
			require.NoError(t, os.MkdirAll(root+p.mark, 0o755))
		}
		found := Detect(root)
		assert.Equal(t, p.Name, found.Name)
		assert.Equal(t, root+p.KubeletConfig, found.At(p.KubeletConfig))
	}
}

func TestDetectTakesEveryFormOfTheHostsOwnRoot(t *testing.T) {
	t.Parallel()
	for _, root := range []string{"", "/", "//", "/."} {
		assert.Equal(t, "/etc/kubernetes", Detect(root).At("/etc/kubernetes"), root)
	}
}

// A platform without one of its paths would read or write the root directory.
func TestEveryPlatformHasEveryPath(t *testing.T) {
	t.Parallel()
	all := All()
	for n, p := range all {
		assert.Equal(t, n == len(all)-1, p.mark == "", "only the last has no mark: %s", p.Name)
		paths := append([]string{
			p.Templates, p.PodManifests, p.KubeletConfig, p.ContainerdSocket, p.ContainerdConfig, p.CertsD,
		}, append(p.Kubeconfigs, p.Logins...)...)
		for _, path := range paths {
			assert.True(t, filepath.IsAbs(path) && path == filepath.Clean(path), "%s: %q", p.Name, path)
		}
		assert.Regexp(t, `^[a-z0-9-]+\.service$`, p.KubeletUnit, p.Name)
		assert.NotEmpty(t, p.Kubeconfigs, p.Name)
		assert.NotEmpty(t, p.Logins, p.Name)
		for _, path := range p.Paths() {
			assert.NotEmpty(t, path.Value, "%s: %s", p.Name, path.Name)
		}
	}
}
