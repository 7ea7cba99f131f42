// SPDX-License-Identifier: Apache-2.0

package neighbours

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/localregistry"
	"github.com/kubic-project/image-update-agent/internal/registry/registryhost"
	"github.com/kubic-project/image-update-agent/internal/registry/registrytest"
)

// hostEdits is the number of hosts.toml files that the test edits for each version.
const hostEdits = 350

// TestContainerdReadsTheHostsOfLocalRegistryEnable checks that after `local-registry enable` containerd asks the same
// hosts in the same way and order, plus the local registry, and that after `disable` it reads what it read before.
func TestContainerdReadsTheHostsOfLocalRegistryEnable(t *testing.T) {
	t.Parallel()
	for part, version := range containerds {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			rounds, r := inputs(t, hostEdits)
			ca, _, _ := registrytest.Certificate(t)
			c, top := startContainerd(t, "edited-hosts", part), t.TempDir()
			hides := []string{registrytest.Text(t, ca), "a certificate"}
			edited, refused := 0, 0
			for n := range rounds {
				tree := hostFiles{r, registrytest.Text(t, ca)}
				namespace := tree.one("registry.example", "registry.example:5000", "docker.io")
				root := filepath.Join(top, fmt.Sprint(n))
				files := map[string]string{}
				for name, text := range tree.all(namespace) {
					if name[0] != 'b' { // the agent writes to one of several directories
						files[name] = text
						put(t, filepath.Join(root, name), text)
					}
				}
				require.NoError(t, os.MkdirAll(filepath.Join(root, "a"), 0o755))
				dirs := []string{filepath.Join(root, "a")}
				about := fmt.Sprintf("%d: %s\n%s", n, namespace, shown(files))
				asks := containerdAsked{CertsDirs: dirs, Namespace: namespace}
				isOtherwise := onPurposeHosts(version, dirs, namespace) != "" // doctor reports it
				before := c.ask(asks, input{dirs: []string{root}, hides: hides})
				position := localregistry.Gate
				if r.IntN(2) == 0 {
					position = localregistry.Fallback
				}
				change, err := registryhost.Registries{Dirs: dirs}.Enable(t.Context(), namespace, position)
				if err != nil || change.IsNone() {
					refused++
					continue
				}
				require.NoError(t, change.Write(), about)
				after := c.ask(asks, input{dirs: []string{root}, hides: hides})
				if !isOtherwise {
					edited++
					require.Empty(t, after.Err, "%s\n%s", about, change.After)
					own := slices.IndexFunc(after.Hosts, func(h containerdHost) bool { return localregistry.Is(h.Scheme, h.Host) })
					if assert.GreaterOrEqual(t, own, 0, "%s\n%s", about, change.After) {
						rest := slices.Delete(slices.Clone(after.Hosts), own, own+1)
						assert.Equal(t, before.Hosts, rest, "%s\n%s", about, change.After)
					}
				}
				off, err := registryhost.Registries{Dirs: dirs}.Disable(t.Context(), namespace)
				require.NoError(t, err, about)
				require.NoError(t, off.Write(), about)
				assert.Equal(t, before, c.ask(asks, input{dirs: []string{root}, hides: hides}), about)
			}
			t.Logf("edited: %d, refused: %d", edited, refused)
			assert.Greater(t, edited, rounds/20)
		})
	}
}
