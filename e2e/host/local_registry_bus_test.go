// SPDX-License-Identifier: Apache-2.0

package host_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/e2e/host"
	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
)

// TestHostBusChangesTheLocalRegistry enables and disables the local registry by the bus. The daemon does it within the
// sandbox of its unit, for root and a user whom polkit allows it, and restores the admin's file to the byte.
func TestHostBusChangesTheLocalRegistry(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, root host.Root) {
		const admins = "server = \"https://registry.suse.com\"\n\n[host.\"https://mirror.example.com\"]\n"
		const file = "/etc/containerd/certs.d/registry.suse.com/hosts.toml"
		h, _, _ := installed(t, root, node.Options{Containerd: node.Containerd2, ConfigPath: []string{"/etc/containerd/certs.d"}})
		h.WriteFile("/etc/containerd/config.toml", "version = 3\n[plugins.'io.containerd.cri.v1.images'.registry]\nconfig_path = '/etc/containerd/certs.d'\n")
		story.StubKubelet(h)
		require.Equal(t, "running", h.Boot())
		h.Must("mkdir", "--parents", "/etc/containerd/certs.d/registry.suse.com")
		h.WriteFile(file, admins)
		h.WriteFile("/etc/containerd/certs.d/_default/hosts.toml", "[host.\"https://mirror.example.com\"]\n")
		h.Must("chmod", "600", file)
		h.AddUser("joe")
		hostSays(t, h, "check")

		refused := busctl(h, "joe", "call", "EnableLocalRegistry", "sb", "registry.suse.com", "true")
		assert.Contains(t, refused.Stderr, "polkit requires a password for org.opensuse.ImageUpdateAgent1.enable-local-registry")
		assert.Equal(t, admins, h.ReadFile(file))
		r := busctl(h, "", "call", "EnableLocalRegistry", "sb", "registry.suse.com", "true")
		require.Zero(t, r.Code, r.Stderr)
		assert.Contains(t, h.ReadFile(file), "http://127.0.0.1:334")
		assert.Equal(t, "600 0:0", h.Must("stat", "--format=%a %u:%g", file))
		assert.Contains(t, h.Exec("image-update-agent", "local-registry", "show").Stdout, "gate")
		r = busctl(h, "", "call", "EnableLocalRegistry", "sb", "registry.suse.com", "true")
		assert.Contains(t, r.Stderr, "nothing to do")

		const other = "quay.example.com" // it has no directory: _default is its source
		r = busctl(h, "", "call", "EnableLocalRegistry", "sb", other, "false")
		require.Zero(t, r.Code, r.Stderr)
		assert.Contains(t, h.Exec("image-update-agent", "local-registry", "show", other).Stdout, "fallback")
		assert.Contains(t, h.ReadFile("/etc/containerd/certs.d/"+other+"/hosts.toml"), "mirror.example.com")

		h.WriteFile("/etc/polkit-1/rules.d/40-joe.rules", strings.Replace(joesRule, ".hold", ".disable-local-registry", 1))
		node.Eventually(t, "polkit reads the rule", story.Ready, func() error {
			if r := busctl(h, "joe", "call", "DisableLocalRegistry", "s", "registry.suse.com"); r.Code != 0 {
				return errors.New(r.Stderr)
			}
			return nil
		})
		assert.Equal(t, admins, h.ReadFile(file))
		assert.Equal(t, "600 0:0", h.Must("stat", "--format=%a %u:%g", file))
		require.Zero(t, busctl(h, "", "call", "DisableLocalRegistry", "s", other).Code)
		assert.Nil(t, hostSays(t, h, "status").LocalRegistry)
		for name, text := range map[string]string{"_default": "no registry", "registry.suse.com": "nothing to do"} {
			assert.Contains(t, busctl(h, "", "call", "DisableLocalRegistry", "s", name).Stderr, text)
		}

		h.Must("mount", "--options", "remount,bind,ro", "/etc/containerd/certs.d")
		h.Must("systemctl", "restart", host.Service)
		node.Eventually(t, "the daemon says what it may not write", story.Ready, func() error {
			r := busctl(h, "", "call", "EnableLocalRegistry", "sb", "registry.suse.com", "false")
			if !strings.Contains(r.Stderr, "ReadWritePaths=/etc/containerd/certs.d") {
				return errors.New(r.Stderr)
			}
			return nil
		})
		assert.Equal(t, admins, h.ReadFile(file))
	})
}
