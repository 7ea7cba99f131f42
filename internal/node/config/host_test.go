// SPDX-License-Identifier: Apache-2.0

package config

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/internal/node/platform"
)

// configPaths are containerd's configurations with their config_path.
var configPaths = map[string]struct{ toml, want string }{
	"version 2": {`version = 2
[plugins."io.containerd.grpc.v1.cri".registry]
  config_path = "/etc/containerd/hosts"
`, "/etc/containerd/hosts"},
	"version 3": {`version = 3
[plugins.'io.containerd.cri.v1.images'.registry]
  config_path = '/etc/containerd/certs.d:/etc/docker/certs.d'
`, "/etc/containerd/certs.d:/etc/docker/certs.d"},
	"other plugins only": {"[plugins.'io.containerd.internal.v1.opt']\n  path = '/opt'\n", ""},
	"relative":           {"[plugins.'io.containerd.cri.v1.images'.registry]\n  config_path = 'certs.d'\n", ""},
	"of another type":    {"[plugins.'io.containerd.cri.v1.images'.registry]\n  config_path = 3\n", ""},
	"broken":             {"[plugins", ""},
	"empty":              {"", ""},
}

func TestConfigPath(t *testing.T) {
	t.Parallel()
	for name, c := range configPaths {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := tree(t, map[string]string{containerdFile: c.toml})
			want := Entry{"containerd.certsD", c.want, root + containerdFile}
			if c.want == "" {
				want = Entry{"containerd.certsD", "/etc/containerd/certs.d", "default"}
			}
			assert.Contains(t, load(t, Sources{Root: root}).Entries(), want)
		})
	}
}

func TestStaticPodPath(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"kind: KubeletConfiguration\nstaticPodPath: /srv/pods/\n": "/srv/pods",
		"kind: KubeletConfiguration\n":                            "",
		"staticPodPath: [\n":                                      "",
		"staticPodPath: pods\n":                                   "/var/lib/kubelet/pods", // relative to the file
		"staticPodPath: \"/a\\nb\"\n":                             "",
		"readOnlyPort: open\nstaticPodPath: /srv/pods\n":          "/srv/pods",
	} {
		root := tree(t, map[string]string{kubeletFile: text})
		used := load(t, Sources{Root: root}).Settings.PodManifests
		if want == "" {
			assert.Empty(t, ReadKubelet(platform.Detect(root), kubelets("")).PodManifests(), text)
			assert.Equal(t, root+"/etc/kubernetes/manifests", used, text)
			continue
		}
		assert.Equal(t, want, ReadKubelet(platform.Detect(root), kubelets("")).PodManifests(), text)
		assert.Equal(t, root+want, used, text)
	}
}

// EventedPLEG may be set in the file, in a drop-in or by a flag, which overrides one gate of the file.
func TestEventedPLEG(t *testing.T) {
	t.Parallel()
	const on, off = "featureGates: {Other: false, EventedPLEG: true}\n", "featureGates:\n  EventedPLEG: false\n"
	for name, c := range map[string]struct {
		text, flags string
		want        bool
	}{
		"on":                    {on, "", true},
		"off":                   {off, "", false},
		"as by default":         {"kind: KubeletConfiguration\n", "", false},
		"not gates":             {"featureGates: [EventedPLEG]\n", "", false},
		"null":                  {"featureGates: ~\n", "", false},
		"JSON":                  {`{"featureGates": {"EventedPLEG": true}}`, "", true},
		"off, and on by a flag": {off, "--feature-gates=A=true,EventedPLEG=true", true},
		"on, and off by a flag": {on, "--feature-gates EventedPLEG=false", false},
		"on, and another flag":  {on, "--feature-gates=A=true", true},
	} {
		p := platform.Detect(tree(t, map[string]string{kubeletFile: c.text}))
		assert.Equal(t, c.want, ReadKubelet(p, kubelets(c.flags)).EventedPLEG() != "", name)
	}
}

// highThresholds are kubelet's configurations with their percentage.
var highThresholds = map[string]string{
	"imageGCHighThresholdPercent: 70\n":                            "70",
	"kind: KubeletConfiguration\nimageGCHighThresholdPercent: 100": "100",
	"imageGCHighThresholdPercent: 101":                             "",
	"imageGCHighThresholdPercent: 0":                               "",
	"imageGCHighThresholdPercent: -1":                              "",
	"imageGCHighThresholdPercent: most":                            "",
	"imageGCLowThresholdPercent: 70":                               "",
	"imageGCHighThresholdPercent: [":                               "",
}

func TestHighThreshold(t *testing.T) {
	t.Parallel()
	for text, want := range highThresholds {
		root := tree(t, map[string]string{kubeletFile: text})
		shown := Entry{"disk.highMark", want, root + kubeletFile}
		if want == "" {
			shown = Entry{"disk.highMark", "85", "default"}
		}
		assert.Contains(t, load(t, Sources{Root: root}).Entries(), shown, text)
	}
}

// A high mark of 0 in any file means kubelet's own; `config show` prints the effective value.
func TestHighMarkOfZeroIsKubelets(t *testing.T) {
	t.Parallel()
	kubelets := Entry{Key: "disk.highMark", Value: "70", Origin: kubeletFile}
	for name, c := range map[string]struct {
		files map[string]string
		mark  int
		shown Entry
	}{
		"nobody says": {nil, 85, Entry{"disk.highMark", "85", "default"}},
		"kubelet":     {map[string]string{kubeletFile: "imageGCHighThresholdPercent: 70"}, 70, kubelets},
		"0 in ours": {map[string]string{
			kubeletFile: "imageGCHighThresholdPercent: 70", adminFile: "disk: {highMark: 0}",
		}, 70, kubelets},
		"0 over another": {map[string]string{
			kubeletFile: "imageGCHighThresholdPercent: 70",
			adminFile:   "disk: {highMark: 60}", dropIns + "/a.yaml": "disk: {highMark: 0}",
		}, 70, kubelets},
		"ours wins": {map[string]string{
			kubeletFile: "imageGCHighThresholdPercent: 70", adminFile: "disk: {highMark: 60}",
		}, 60, Entry{"disk.highMark", "60", adminFile + ":1"}},
		"0 where kubelet says nothing": {map[string]string{adminFile: "disk: {highMark: 0}"}, 85, Entry{"disk.highMark", "85", "default"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := tree(t, c.files)
			got := load(t, Sources{Root: root})
			assert.Equal(t, c.mark, got.Settings.Disk.HighMark)
			if c.shown.Origin != "default" {
				c.shown.Origin = root + c.shown.Origin
			}
			assert.Contains(t, got.Entries(), c.shown)
		})
	}
}

func TestOurFilesOverrideTheNodes(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	write := func(name, text string) {
		require.NoError(t, os.MkdirAll(filepath.Dir(root+name), 0o755))
		require.NoError(t, os.WriteFile(root+name, []byte(text), 0o600))
	}
	write(kubeletFile, "staticPodPath: /srv/pods\n")
	write(containerdFile, configPaths["version 3"].toml)
	c, err := Load(Sources{Root: root})
	require.NoError(t, err)
	assert.Equal(t, root+"/srv/pods", c.Settings.PodManifests)
	assert.Equal(t, []string{root + "/etc/containerd/certs.d", root + "/etc/docker/certs.d"}, c.Settings.Containerd.CertsD)
	assert.Contains(t, c.Entries(), Entry{Key: "podManifests", Value: "/srv/pods", Origin: root + kubeletFile})

	write(adminFile, "podManifests: /etc/pods\ncontainerd: {certsD: /etc/hosts.d}\n")
	c, err = Load(Sources{Root: root})
	require.NoError(t, err)
	assert.Equal(t, root+"/etc/pods", c.Settings.PodManifests)
	assert.Equal(t, []string{root + "/etc/hosts.d"}, c.Settings.Containerd.CertsD)
}

func TestMissingNodeValueIsTheDefault(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	require.NoError(t, os.MkdirAll(root+filepath.Dir(containerdFile), 0o755))
	require.NoError(t, os.WriteFile(root+containerdFile, []byte("not toml ["), 0o600))
	c, err := Load(Sources{Root: root})
	require.NoError(t, err, "another program's file is not ours to refuse")
	assert.Equal(t, root+"/etc/kubernetes/manifests", c.Settings.PodManifests)
	assert.Equal(t, []string{root + "/etc/containerd/certs.d"}, c.Settings.Containerd.CertsD)
}
