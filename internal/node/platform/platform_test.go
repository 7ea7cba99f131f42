// SPDX-License-Identifier: Apache-2.0

package platform

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestDetectAcceptsEveryFormOfTheHostsRoot(t *testing.T) {
	t.Parallel()
	for _, root := range []string{"", "/", "//", "/."} {
		assert.Equal(t, "/etc/kubernetes", Detect(root).At("/etc/kubernetes"), root)
	}
}

// A platform without one of its paths would read or write in the root directory.
func TestEveryPlatformHasEveryPath(t *testing.T) {
	t.Parallel()
	for _, p := range All() {
		paths := append([]string{
			p.Data, p.Templates, p.PodManifests, p.KubeletConfig, p.ContainerdSocket, p.ContainerdConfig, p.CertsD,
		}, append(p.Kubeconfigs, p.Logins...)...)
		paths = append(paths, p.Programs...)
		if p.KubeletDropIns != "" {
			paths = append(paths, p.KubeletDropIns, p.Config, p.ServerMark)
		}
		if p.Registries != "" {
			paths = append(paths, p.Registries)
		}
		for _, path := range paths {
			assert.True(t, filepath.IsAbs(path) && path == filepath.Clean(path), "%s: %q", p.Name, path)
		}
		for _, unit := range p.Units {
			assert.Regexp(t, `^[a-z0-9-]+\.service$`, unit, p.Name)
		}
		for _, file := range p.Owned {
			assert.Regexp(t, `^[a-z-]+\.yaml$`, file, p.Name)
		}
		assert.NotEmpty(t, p.Programs, p.Name)
		assert.NotEmpty(t, p.Units, p.Name)
		assert.NotEmpty(t, p.Kubeconfigs, p.Name)
		assert.NotEmpty(t, p.Logins, p.Name)
		for _, path := range Named(t.TempDir(), p.Name).Paths() {
			assert.NotEmpty(t, path.Value, "%s: %s", p.Name, path.Name)
		}
	}
}

// node returns a root with files; a path that ends in / is a directory.
func node(t *testing.T, paths ...string) string {
	t.Helper()
	root := t.TempDir()
	for _, path := range paths {
		require.NoError(t, os.MkdirAll(filepath.Join(root, filepath.Dir(path)), 0o755))
		if filepath.Clean(path) == path {
			require.NoError(t, os.WriteFile(filepath.Join(root, path), nil, 0o600))
		} else {
			require.NoError(t, os.MkdirAll(filepath.Join(root, path), 0o755))
		}
	}
	return root
}

// The files that the distributions' installers leave, in parts and together (install.sh, rke2-uninstall.sh, the RPMs).
const (
	rke2Binary  = "/usr/local/bin/rke2"
	rke2RPM     = "/usr/bin/rke2"
	rke2Server  = "/usr/local/lib/systemd/system/rke2-server.service"
	rke2Agent   = "/usr/local/lib/systemd/system/rke2-agent.service"
	rke2Data    = "/var/lib/rancher/rke2/agent/"
	rke2Token   = "/var/lib/rancher/rke2/server/token"
	k3sBinary   = "/usr/local/bin/k3s"
	k3sUnit     = "/etc/systemd/system/k3s.service"
	k3sAgent    = "/etc/systemd/system/k3s-agent.service"
	k3sData     = "/var/lib/rancher/k3s/agent/"
	k3sToken    = "/var/lib/rancher/k3s/server/token"
	kubelet     = "/usr/bin/kubelet"
	kubeletUnit = "/usr/lib/systemd/system/kubelet.service"
	kubeadmDone = "/var/lib/kubelet/config.yaml"
	caaspPods   = "/usr/share/caasp-container-manifests/manifests/"
	wants       = "/etc/systemd/system/multi-user.target.wants/"
)

func TestDetectFindsThePlatformOfTheNode(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		paths      []string
		want, unit string
	}{
		"nothing":      {nil, "kubeadm", "kubelet.service"},
		"kubeadm":      {[]string{kubelet, kubeletUnit, kubeadmDone}, "kubeadm", "kubelet.service"},
		"caasp":        {[]string{caaspPods}, "caasp", "kubelet.service"},
		"caasp set up": {[]string{caaspPods, kubelet, kubeletUnit, kubeadmDone, wants + "kubelet.service"}, "caasp", "kubelet.service"},

		"RKE2, a server": {[]string{rke2Binary, rke2Server, rke2Agent, rke2Data, rke2Token}, "rke2", "rke2-server.service"},
		"RKE2, an agent": {[]string{rke2RPM, rke2Server, rke2Agent, rke2Data}, "rke2", "rke2-agent.service"},
		"what a boot starts counts, and not what is left of a server": {
			[]string{rke2Binary, rke2Server, rke2Agent, rke2Data, rke2Token, wants + "rke2-agent.service"}, "rke2", "rke2-agent.service",
		},
		"k3s, a server":                  {[]string{k3sBinary, k3sUnit, k3sData, k3sToken}, "k3s", "k3s.service"},
		"k3s, an agent":                  {[]string{k3sBinary, k3sAgent, k3sData}, "k3s", "k3s-agent.service"},
		"k3s, an agent, never started":   {[]string{k3sBinary, k3sAgent}, "k3s", "k3s-agent.service"},
		"RKE2, never started":            {[]string{rke2Binary, rke2Server, rke2Agent}, "rke2", "rke2-server.service"},
		"k3s, its program alone":         {[]string{k3sBinary}, "k3s", "k3s.service"},
		"k3s, removed":                   {[]string{k3sData, k3sToken, kubelet, kubeletUnit, kubeadmDone}, "kubeadm", "kubelet.service"},
		"k3s, removed, kubelet to be":    {[]string{k3sData, kubelet, kubeletUnit}, "kubeadm", "kubelet.service"},
		"k3s, its program elsewhere":     {[]string{k3sData, k3sToken}, "k3s", "k3s.service"},
		"kubelet's package beside RKE2":  {[]string{kubelet, kubeletUnit, rke2Binary, rke2Server, rke2Data, rke2Token}, "rke2", "rke2-server.service"},
		"templates on a node of RKE2":    {[]string{caaspPods, rke2Binary, rke2Data, rke2Token}, "rke2", "rke2-server.service"},
		"templates on a node of k3s":     {[]string{caaspPods, k3sBinary, k3sUnit, k3sData, wants + "k3s.service"}, "k3s", "k3s.service"},
		"two, and a boot starts kubelet": {[]string{k3sBinary, k3sUnit, k3sData, kubelet, kubeletUnit, kubeadmDone, wants + "kubelet.service"}, "kubeadm", "kubelet.service"},
		"two, and a boot starts k3s":     {[]string{k3sBinary, k3sUnit, k3sData, k3sToken, kubelet, kubeletUnit, kubeadmDone, wants + "k3s.service"}, "k3s", "k3s.service"},
		"two, and nothing says which":    {[]string{k3sBinary, k3sUnit, k3sData, k3sToken, kubelet, kubeletUnit, kubeadmDone}, "k3s", "k3s.service"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := node(t, c.paths...)
			found := Detect(root)
			assert.Equal(t, c.want, found.Name)
			assert.Equal(t, c.unit, found.KubeletUnit)
			assert.Equal(t, root+found.KubeletConfig, found.At(found.KubeletConfig))
			for _, name := range Names() {
				assert.Equal(t, name, Named(root, name).Name, "a setting wins over what is found")
			}
		})
	}
}

func TestLook(t *testing.T) {
	t.Parallel()
	seen := map[string]Seen{}
	for _, s := range Look(node(t, rke2RPM, rke2Data, k3sData, kubeletUnit, wants+"rke2-server.service")) {
		seen[s.Platform.Name] = s
	}
	assert.Equal(t, rke2RPM, seen["rke2"].Program)
	assert.Equal(t, "/var/lib/rancher/rke2", seen["rke2"].Data)
	assert.True(t, seen["rke2"].Enabled)
	assert.True(t, seen["rke2"].IsWhole())
	assert.Empty(t, seen["k3s"].Program)
	assert.Equal(t, "/var/lib/rancher/k3s", seen["k3s"].Data)
	assert.False(t, seen["k3s"].IsWhole(), "it was removed")
	assert.Equal(t, kubeletUnit, seen["kubeadm"].Program)
	assert.False(t, seen["kubeadm"].IsWhole(), "it was never set up")
}

// data-dir moves RKE2's data, but not its files in /etc and /run.
func TestMovedDataDirectory(t *testing.T) {
	t.Parallel()
	was := Named(node(t, rke2Binary, "/srv/rke2/server/token"), "rke2")
	p := was.Moved("/srv/rke2")
	assert.Equal(t, "/srv/rke2/agent/pod-manifests", p.PodManifests)
	assert.Equal(t, "/srv/rke2/agent/etc/containerd/config.toml", p.ContainerdConfig)
	assert.Equal(t, "/srv/rke2/agent/etc/containerd/certs.d", p.CertsD)
	assert.Equal(t, "/srv/rke2/agent/etc/kubelet.conf.d", p.KubeletDropIns)
	assert.Equal(t, []string{"/etc/rancher/rke2/rke2.yaml", "/srv/rke2/agent/kubelet.kubeconfig"}, p.Kubeconfigs)
	assert.Equal(t, "/run/k3s/containerd/containerd.sock", p.ContainerdSocket)
	assert.Equal(t, "/etc/rancher/rke2/registries.yaml", p.Registries)
	assert.Equal(t, "rke2-server.service", p.KubeletUnit, "its token is in the other directory, too")
	assert.Equal(t, "/var/lib/rancher/rke2/agent/kubelet.kubeconfig", was.Kubeconfigs[1], "the one before stays")
}

func TestVersionOfRKE2(t *testing.T) {
	t.Parallel()
	for to, want := range map[string]string{
		"/var/lib/rancher/rke2/data/v1.33.5-rke2r1-0123456789ab/bin": "v1.33.5-rke2r1",
		"/var/lib/rancher/rke2/data/0123456789abcdef/bin":            "", // named by digest
		"": "",
	} {
		root := node(t, rke2Data)
		if to != "" {
			require.NoError(t, os.Symlink(to, root+"/var/lib/rancher/rke2/bin"))
		}
		assert.Equal(t, want, Named(root, "rke2").Version(), to)
	}
}
