// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/internal/node/config"
	"github.com/kubic-project/image-update-agent/internal/node/images"
	"github.com/kubic-project/image-update-agent/internal/node/platform"
	"github.com/kubic-project/image-update-agent/internal/registry/hosts"
)

// found wants a Finding of that verdict with those texts, and a remedy exactly
// where something is to be done.
func found(t *testing.T, f Finding, verdict string, texts ...string) {
	t.Helper()
	assert.Equal(t, verdict, f.Verdict, "%+v", f)
	for _, text := range texts {
		assert.Contains(t, f.Detail+"\n"+f.Remedy, text)
	}
	assert.Equal(t, verdict == OK || verdict == Skipped, f.Remedy == "", "%+v", f)
}

// spaces are image file systems of 100 GB, but where a name says otherwise.
var spaces = map[string]struct {
	free    int64
	disk    config.Disk
	verdict string
	texts   []string
}{
	"plenty": {
		60e9,
		config.Disk{Reserve: 1 << 30, ReservePercent: 10, HighMark: 85},
		OK,
		[]string{"/images: 60.0 GB of 100.0 GB free", "10.0 GB are reserved", "kubelet removes images at 85 % (15.0 GB free)", "space for 45.0 GB"},
	},
	"the reserve is larger": {
		24e9,
		config.Disk{Reserve: 20e9, ReservePercent: 10, HighMark: 85},
		OK,
		[]string{"20.0 GB are reserved", "space for 4.0 GB"},
	},
	"below the reserve": {
		19e9,
		config.Disk{Reserve: 20e9, ReservePercent: 10, HighMark: 85},
		Warn,
		[]string{"the agent stages nothing until 1.0 GB more are free", "disk.reserve", "crictl rmi IMAGE"},
	},
	"exactly the reserve":         {20e9, config.Disk{Reserve: 20e9, HighMark: 85}, Warn, []string{"until 1 bytes more"}},
	"the percentage is larger":    {14e9, config.Disk{Reserve: 1, ReservePercent: 14, HighMark: 90}, Warn, []string{"14.0 GB are reserved"}},
	"kubelet collects":            {14e9, config.Disk{Reserve: 1, HighMark: 85}, Warn, []string{"kubelet is removing images now", "enlarge"}},
	"kubelet collects at another": {14e9, config.Disk{Reserve: 1, HighMark: 90}, OK, []string{"at 90 %", "space for 4.0 GB"}},
}

func TestCheckImageSpace(t *testing.T) {
	t.Parallel()
	for name, c := range spaces {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := checkImageSpace(policy.Filesystem{Path: "/images", Size: 100e9, Free: c.free}, c.disk)
			found(t, f, c.verdict, c.texts...)
		})
	}
	found(t, checkImageSpace(policy.Filesystem{Path: "/images"}, config.Disk{}), Warn, "/images: unknown size")
}

var errNoName = errors.New("names no snapshotter")

// sayings are what configuration, CRI and containerd say of the snapshotter.
var sayings = map[string]struct {
	said    snapshotters
	verdict string
	texts   []string
}{
	"CRI's":                 {snapshotters{cri: "overlayfs"}, OK, []string{"overlayfs, according to CRI"}},
	"CRI's, as configured":  {snapshotters{configured: "overlayfs", cri: "overlayfs"}, OK, []string{"as configured and according to CRI"}},
	"another than CRI's":    {snapshotters{configured: "native", cri: "overlayfs"}, Fail, []string{"native is configured, but CRI uses overlayfs", "remove containerd.snapshotter"}},
	"CRI says nothing":      {snapshotters{criErr: errNoName}, Fail, []string{errNoName.Error(), "set containerd.snapshotter"}},
	"configured, CRI quiet": {snapshotters{configured: "native", criErr: errNoName}, Warn, []string{"native, as configured; " + errNoName.Error()}},
	"not loaded":            {snapshotters{cri: "zfs", log: "journalctl -u containerd"}, Fail, []string{"zfs: containerd has not loaded this snapshotter, only native, overlayfs", "journalctl -u containerd"}},
	"configured, not there": {snapshotters{configured: "overlay", cri: "overlayfs"}, Fail, []string{"overlay: containerd has not loaded this snapshotter"}},
}

func TestCheckSnapshotter(t *testing.T) {
	t.Parallel()
	for name, c := range sayings {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.said.server.Snapshotters = map[string][]string{"overlayfs": nil, "native": nil}
			found(t, c.said.check(), c.verdict, c.texts...)
		})
	}
}

func TestCheckContent(t *testing.T) {
	t.Parallel()
	assert.Empty(t, checkContent("k8s.io", nil, nil))
	found(t, checkContent("k8s.io", nil, errors.New("connection refused"))[0], Warn, "not known: connection refused")
	blob := digest.FromString("lost")
	all := checkContent("k8s.io", []images.BrokenBlob{{Image: "velum", Digest: blob}, {Image: "etcd", Digest: blob}}, nil)
	require.Len(t, all, 2)
	found(t, all[0], Fail, "velum: containerd lists "+blob.String(), "ctr -n k8s.io content rm "+blob.String())
}

func TestCheckHosts(t *testing.T) {
	t.Parallel()
	serverOnly := hosts.Dir{Path: "/c/a", Server: "m1"}
	mirror := hosts.Dir{Path: "/c/b", Server: "m1", HostTable: true}
	broken := hosts.Dir{Path: "/c/c", Unparsed: errors.New("unknown capability pul")}
	lost := hosts.Dir{Path: "/c/d", Err: errors.New("no such file")}
	only := func(version string, dirs ...hosts.Dir) Finding {
		all := newNode(t).checkHosts(dirs, version, "")
		require.Len(t, all, 1)
		return all[0]
	}
	found(t, only("v2.4.2"), OK, "no hosts.toml")
	found(t, only("v2.4.2", serverOnly, mirror), OK, "2 hosts.toml")
	rewritten := hosts.Dir{Path: "/c/e", HostTable: true, Rewritten: "https://m1"}
	found(t, only("v2.1.4-k3s1", rewritten), Warn, "/c/e/hosts.toml: https://m1 renames images", "registries.yaml")
	found(t, only("1.7.24", serverOnly), OK)
	found(t, only("", serverOnly), OK)
	found(t, only("1.6.20~ds1", mirror), OK)
	found(t, only("1.6.20~ds1", hosts.Dir{Path: "/c/empty"}), OK)
	found(t, only("1.6.20~ds1", serverOnly), Fail, "/c/a/hosts.toml: no [host] table: containerd 1.6.20~ds1 ignores the whole file", "add a line [host]")
	found(t, only("v1.6.9", hosts.Dir{Path: "/c/ca", Authorities: true}), Fail, "/c/ca/hosts.toml")
	apart := hosts.Dir{Path: "/c/e", HostTable: true, Unasked: "https://m1"}
	found(t, only("1.7.24", apart), Fail, "/c/e/hosts.toml: containerd 1.7.24 also asks https://m1", "only a table with capabilities for each host")
	found(t, only("v2.4.2", apart), Fail, "/c/e/hosts.toml: containerd v2.4.2 does not ask https://m1", `add a table [host."https://m1"]`)
	found(t, only("1.7.24", hosts.Dir{Path: "/c/f", HostTable: true, Only2: "the capability referrers"}), Fail, "does not know the capability referrers")
	why := `config_path is "/c:/d", which containerd v2.4.2 reads as the name of a single directory`
	all := newNode(t).checkHosts([]hosts.Dir{mirror, lost}, "v2.4.2", why)
	require.Len(t, all, 1, "one cause, one finding")
	found(t, all[0], Fail, why, "containerd v2.4.2 ignores every hosts.toml and asks the upstream registry", "set config_path to one directory (/c)")
	found(t, newNode(t).checkHosts(nil, "v2.4.2", why)[0], OK, "no hosts.toml")
	all = newNode(t).checkHosts([]hosts.Dir{mirror, broken, lost}, "v2.4.2", "")
	require.Len(t, all, 2, "each file is named")
	found(t, all[0], Fail, "/c/c/hosts.toml: unknown capability pul: containerd v2.4.2 ignores the whole file and asks the upstream registry", "correct the file")
	found(t, all[1], Fail, "/c/d/hosts.toml: no such file: containerd cannot pull from these hosts")
}

func TestCheckParallel(t *testing.T) {
	t.Parallel()
	able := images.Server{Version: "v2.4.2", Snapshotters: map[string][]string{"overlayfs": {"remap-ids", rebase}, "native": nil}}
	found(t, newNode(t).checkParallel(able, "overlayfs", 0), Advice, "off for kubelet's own pulls: containerd v2.4.2 is not configured", "set max_concurrent_unpacks = 4 below [plugins.\"io.containerd.transfer.v1.local\"]")
	found(t, newNode(t).checkParallel(able, "overlayfs", 1), Advice)
	found(t, newNode(t).checkParallel(able, "overlayfs", 4), OK, "4 layers at once for kubelet's own pulls")
	found(t, newNode(t).checkParallel(able, "native", 4), OK, "with native unpacks the layers of an image one by one")
	found(t, newNode(t).checkParallel(images.Server{Version: "1.6.20"}, "overlayfs", 0), OK, "containerd 1.6.20 with overlayfs unpacks")
}

// A command that would not work is no remedy: k3s and RKE2 start containerd themselves, and write its configuration.
func TestRemediesNameTheUnitThatStartsContainerd(t *testing.T) {
	t.Parallel()
	able := images.Server{Version: "v2.4.2", Snapshotters: map[string][]string{"overlayfs": {rebase}}}
	for name, want := range map[string]struct{ unit, file, log string }{
		"kubeadm": {"containerd", "/etc/containerd/config.toml", "journalctl -u containerd"},
		"caasp":   {"containerd", "/etc/containerd/config.toml", "journalctl -u containerd"},
		"k3s": {
			"k3s", "/var/lib/rancher/k3s/agent/etc/containerd/config-v3.toml.tmpl",
			"/var/lib/rancher/k3s/agent/containerd/containerd.log",
		},
		"rke2": {
			"rke2-server", "/var/lib/rancher/rke2/agent/etc/containerd/config-v3.toml.tmpl",
			"/var/lib/rancher/rke2/agent/containerd/containerd.log",
		},
	} {
		n := newNode(t)
		for _, p := range platform.All() {
			if p.Name == name {
				n.Platform = p
				n.Platform.KubeletUnit = p.Units[0]
			}
		}
		n.Platform.Root = t.TempDir()
		n.Containerd.Socket, n.CRI.Socket = n.at("none"), n.at("none")
		findings, usable := n.checkRuntime(t.Context())
		require.False(t, usable, name)
		assert.Contains(t, findings[0].Remedy, "(systemctl start "+want.unit+")", name)
		parallel := n.checkParallel(able, "overlayfs", 0)
		assert.Contains(t, parallel.Remedy, want.file, name)
		assert.Contains(t, parallel.Remedy, "systemctl restart "+want.unit+";", name)
		ignored := n.checkHosts([]hosts.Dir{{Path: "/c/a"}}, "v2.4.2", "config_path has two")
		assert.Contains(t, ignored[0].Remedy, want.file, name)
		assert.Contains(t, ignored[0].Remedy, "systemctl restart "+want.unit+";", name)
		assert.Contains(t, n.snapshotterLog(), want.log, name)
	}
}

func TestAProxyThatOnlyContainerdHasIsNamed(t *testing.T) {
	t.Parallel()
	of := func(pairs map[string]string) func(string) string {
		return func(name string) string { return pairs[name] }
	}
	const proxy = "http://user:s3cr3t@proxy.example.com:3128"
	named := "containerd has a proxy (proxy.example.com:3128, HTTPS_PROXY of containerd.service)"
	for title, c := range map[string]struct {
		theirs, own map[string]string
		file        string // /etc/sysconfig/proxy
		passes      string // how the variables of containerd begin
		want        string // empty: no finding
	}{
		"only containerd":       {theirs: map[string]string{"HTTPS_PROXY": proxy}, want: named},
		"in small letters":      {theirs: map[string]string{"https_proxy": proxy}, want: "https_proxy of containerd.service"},
		"nobody passes it on":   {theirs: map[string]string{"CONTAINERD_HTTPS_PROXY": proxy}},
		"as k3s passes it on":   {theirs: map[string]string{"CONTAINERD_HTTPS_PROXY": proxy}, passes: "CONTAINERD_", want: "CONTAINERD_HTTPS_PROXY of"},
		"no URL":                {theirs: map[string]string{"HTTP_PROXY": "s3cr3t"}, want: "(not a URL, HTTP_PROXY of"},
		"both":                  {theirs: map[string]string{"HTTPS_PROXY": proxy}, own: map[string]string{"HTTPS_PROXY": proxy}},
		"the agent's is SUSE's": {theirs: map[string]string{"HTTPS_PROXY": proxy}, file: "PROXY_ENABLED=yes\nHTTPS_PROXY=http://p:1\n"},
		"SUSE's is off":         {theirs: map[string]string{"HTTPS_PROXY": proxy}, file: "PROXY_ENABLED=no\nHTTPS_PROXY=http://p:1\n", want: named},
		"SUSE's is broken":      {theirs: map[string]string{"HTTPS_PROXY": proxy}, file: "PROXY_ENABLED=yes\nHTTPS_PROXY=ftp://p\n", want: "HTTPS_PROXY: want the URL"},
		"only the agent":        {own: map[string]string{"HTTPS_PROXY": proxy}},
		"neither":               {},
	} {
		root := t.TempDir()
		if c.file != "" {
			require.NoError(t, os.MkdirAll(filepath.Join(root, "etc/sysconfig"), 0o755))
			require.NoError(t, os.WriteFile(filepath.Join(root, "etc/sysconfig/proxy"), []byte(c.file), 0o600))
		}
		all := Node{Platform: platform.Platform{Root: root, ContainerdVariables: c.passes}}.
			proxyFindings("containerd.service", of(c.theirs), of(c.own))
		if c.want == "" {
			assert.Empty(t, all, title)
			continue
		}
		require.Len(t, all, 1, title)
		found(t, all[0], Warn, c.want, "/etc/sysconfig/proxy")
		assert.NotContains(t, all[0].Detail, "s3cr3t", title)
	}
}
