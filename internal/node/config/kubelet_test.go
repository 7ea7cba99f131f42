// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/internal/node/platform"
	"github.com/kubic-project/image-update-agent/internal/registry/registrytest"
)

const kubeletUnit = "kubelet.service"

// starts is the manager of a node whose units start a command.
func starts(command string) Asks {
	return func(string) platform.Command { return platform.Command{Words: strings.Fields(command)} }
}

// kubelets starts kubelet as the unit of kubeadm's packages does, with more flags.
func kubelets(flags string) Asks {
	return starts("/usr/bin/kubelet --config=" + kubeletFile + " " + flags)
}

// The order is kubelet's: the file, overridden by the *.conf of --config-dir by name, then by the flags
// (k8s.io/kubernetes v1.34.4, cmd/kubelet/app/server.go).
func TestKubeletsConfigurationIsReadAsByKubelet(t *testing.T) {
	t.Parallel()
	const dir = "/etc/kubernetes/kubelet.conf.d"
	const site = "staticPodPath: /var/lib/static\nimageGCHighThresholdPercent: 70\nreadOnlyPort: 10255\n"
	files := func(more ...string) map[string]string {
		all := map[string]string{kubeletFile: "staticPodPath: /etc/kubernetes/manifests\n"}
		for n := 0; n < len(more); n += 2 {
			all[more[n]] = more[n+1]
		}
		return all
	}
	site90 := files(dir+"/90-site.conf", site)
	for name, c := range map[string]struct {
		files map[string]string
		asks  Asks
		want  string
	}{
		"kubeadm":            {files(), kubelets(""), "/etc/kubernetes/manifests"},
		"drop-ins":           {site90, kubelets("--config-dir=" + dir), "/var/lib/static"},
		"flag and value":     {site90, kubelets("--config-dir " + dir), "/var/lib/static"},
		"last name wins":     {files(dir+"/90-site.conf", site, dir+"/95.conf", "staticPodPath: /b\n"), kubelets("--config-dir=" + dir), "/b"},
		"by name, not age":   {files(dir+"/90-site.conf", site, dir+"/10.conf", "staticPodPath: /b\n"), kubelets("--config-dir=" + dir), "/var/lib/static"},
		"only *.conf":        {files(dir+"/90-site.yaml", site, dir+"/a.conf.bak", site), kubelets("--config-dir=" + dir), "/etc/kubernetes/manifests"},
		"JSON":               {files(dir+"/a.conf", `{"staticPodPath": "/b\/c"}`), kubelets("--config-dir=" + dir), "/b/c"},
		"null takes it back": {files(dir+"/a.conf", "staticPodPath: null\n"), kubelets("--config-dir=" + dir), ""},
		"not named":          {site90, kubelets(""), "/etc/kubernetes/manifests"},
		"flag":               {files(), kubelets("--pod-manifest-path=/f/"), "/f"},
		"flag over drop-in":  {site90, kubelets("--config-dir=" + dir + " --pod-manifest-path /f"), "/f"},
		"underscores":        {files(), kubelets("--pod_manifest_path=/f"), "/f"},
		"last flag":          {files(), kubelets("--pod-manifest-path=/f --pod-manifest-path=/g"), "/g"},
		"below its file":     {files("/etc/k/k.yaml", "staticPodPath: m\n"), kubelets("--config=/etc/k/k.yaml"), "/etc/k/m"},
		"below the root":     {files(), kubelets("--pod-manifest-path=m"), "/m"},
		"twice in a file":    {files("/etc/k.yaml", "staticPodPath: /k\nstaticPodPath: /l\n"), kubelets("--config=/etc/k.yaml"), "/l"},
		"no file is named":   {files(), starts("/usr/bin/kubelet"), ""},
		"another file":       {files("/etc/k.yaml", "staticPodPath: /k\n"), kubelets("--config=/etc/k.yaml"), "/k"},
		"control character":  {files("/etc/k.yaml", "staticPodPath: \"/a\\nb\"\n"), kubelets("--config=/etc/k.yaml"), ""},
		"it is running": {files(), func(string) platform.Command {
			return platform.Command{Running: []string{"/opt/kubelet", "--pod-manifest-path=/r d"}, Words: []string{"/opt/start", "--pod-manifest-path=/f"}}
		}, "/r d"},
		"what runs is not kubelet": {files(), func(string) platform.Command {
			return platform.Command{Running: []string{"sleep", "1"}, Words: []string{"/opt/kubelet", "--pod-manifest-path=/f"}}
		}, "/f"},
		"it is running, and its unit is not read": {files(), func(string) platform.Command {
			return platform.Command{Running: []string{"/opt/kubelet", "--pod-manifest-path=/r"}, Err: errors.New("2 commands")}
		}, "/r"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := tree(t, c.files)
			k := ReadKubelet(platform.Detect(root), c.asks)
			require.NoError(t, errors.Join(k.Problems...))
			assert.Equal(t, c.want, k.PodManifests())
			if c.want != "" {
				got := load(t, Sources{Root: root, Command: c.asks})
				assert.Equal(t, root+c.want, got.Settings.PodManifests)
				assert.NoError(t, got.Unread())
			}
		})
	}
}

func TestEveryValueOfKubeletsDropInsCounts(t *testing.T) {
	t.Parallel()
	root := tree(t, map[string]string{
		"/d/90-site.conf": "imageGCHighThresholdPercent: 70\nreadOnlyPort: 10255\naddress: 10.0.0.1\n",
	})
	c := load(t, Sources{Root: root, Command: starts("kubelet --config-dir=/d --image-gc-high-threshold=60")})
	assert.Equal(t, 60, c.Settings.Disk.HighMark)
	assert.Equal(t, "http://10.0.0.1:10255/pods", c.Settings.Kubelet.Pods)
	assert.Contains(t, c.Entries(), Entry{Key: "disk.highMark", Value: "60", Origin: kubeletUnit})
	assert.Contains(t, c.Entries(), Entry{Key: "kubelet.pods", Value: "http://10.0.0.1:10255/pods", Origin: root + "/d/90-site.conf"})
}

// Unreadable parts are reported: the values may differ then. Without an answer of systemd nothing says which file
// kubelet reads.
func TestUnreadableKubeletConfigurationIsReported(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		files map[string]string
		asks  Asks
		want  string
	}{
		"broken file":           {map[string]string{kubeletFile: "staticPodPath: [\n"}, kubelets(""), "config.yaml"},
		"value of another type": {map[string]string{kubeletFile: "staticPodPath: [a]\n"}, kubelets(""), "line 1: staticPodPath: not a text"},
		"missing file":          {nil, kubelets("--config=/none.yaml"), "none.yaml"},
		"missing directory":     {map[string]string{kubeletFile: ""}, kubelets("--config-dir=/none"), "none"},
		"broken drop-in":        {map[string]string{kubeletFile: "", "/d/a.conf": "\t"}, kubelets("--config-dir=/d"), "a.conf"},
		"a script":              {nil, starts("/opt/start-kubelet"), "flags of kubelet.service are not known: /opt/start-kubelet starts kubelet"},
		"no answer": {map[string]string{kubeletFile: "staticPodPath: /a\n"}, func(string) platform.Command {
			return platform.Command{Err: errors.New("there is no system bus")}
		}, "flags of kubelet.service are not known: there is no system bus"},
		"not asked": {map[string]string{kubeletFile: "staticPodPath: /a\n"}, nil, "flags of kubelet.service are not known"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := tree(t, c.files)
			unread := load(t, Sources{Root: root, Command: c.asks}).Unread()
			require.ErrorContains(t, unread, "cannot tell which directory kubelet reads: ")
			require.ErrorContains(t, unread, c.want)
			require.ErrorContains(t, unread, "; set podManifests")
			named := filepath.Join(t.TempDir(), "config.yaml")
			require.NoError(t, os.WriteFile(named, []byte("podManifests: /manifests\n"), 0o600))
			assert.NoError(t, load(t, Sources{Root: root, File: named, Command: c.asks}).Unread(), "the agent's configuration names it")
		})
	}
}

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
	"relative": {"[plugins.'io.containerd.cri.v1.images'.registry]\n  config_path = 'certs.d'\n", ""},
	"broken":   {"[plugins", ""},
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
	root := tree(t, map[string]string{
		kubeletFile: "staticPodPath: /srv/pods\n", containerdFile: configPaths["version 3"].toml,
	})
	c := load(t, Sources{Root: root})
	assert.Equal(t, root+"/srv/pods", c.Settings.PodManifests)
	assert.Equal(t, []string{root + "/etc/containerd/certs.d", root + "/etc/docker/certs.d"}, c.Settings.Containerd.CertsD)
	assert.Contains(t, c.Entries(), Entry{Key: "podManifests", Value: "/srv/pods", Origin: root + kubeletFile})

	registrytest.Put(t, root, adminFile, "podManifests: /etc/pods\ncontainerd: {certsD: /etc/hosts.d}\n")
	c = load(t, Sources{Root: root})
	assert.Equal(t, root+"/etc/pods", c.Settings.PodManifests)
	assert.Equal(t, []string{root + "/etc/hosts.d"}, c.Settings.Containerd.CertsD)
}

const (
	rke2Unit    = "/usr/local/lib/systemd/system/rke2-server.service"
	rke2Config  = "/etc/rancher/rke2/config.yaml"
	rke2Kubelet = "/var/lib/rancher/rke2/agent/etc/kubelet.conf.d/00-rke2-defaults.conf"
	rke2Pods    = "/var/lib/rancher/rke2/agent/pod-manifests"
	absent      = "\x00" // stands for a missing file
)

// asksRKE2 is the manager of a node of RKE2: what its unit starts, and a variable of it.
func asksRKE2(flags, variable string) Asks {
	name, value, _ := strings.Cut(variable, "=")
	return func(string) platform.Command {
		return platform.Command{
			Running: []string{"/usr/local/bin/rke2 server"}, // the program hides its flags
			Words:   append([]string{"/usr/local/bin/rke2", "server"}, strings.Fields(flags)...), Environment: map[string]string{name: value},
		}
	}
}

// rke2s returns the files of an RKE2 1.33 server (its install.sh, pkg/agent/containerd and pkg/daemons/agent of k3s).
func rke2s(more map[string]string) map[string]string {
	files := map[string]string{
		"/usr/local/bin/rke2":                "",
		rke2Unit:                             "",
		"/var/lib/rancher/rke2/server/token": "",
		rke2Kubelet: `apiVersion: kubelet.config.k8s.io/v1beta1
imageGCHighThresholdPercent: 85
kind: KubeletConfiguration
staticPodPath: /var/lib/rancher/rke2/agent/pod-manifests
`,
		"/var/lib/rancher/rke2/agent/etc/containerd/config.toml": `# File generated by rke2. DO NOT EDIT. Use config.toml.tmpl instead.
version = 3
[plugins.'io.containerd.cri.v1.images'.registry]
  config_path = "/var/lib/rancher/rke2/agent/etc/containerd/certs.d"
`,
	}
	maps.Copy(files, more)
	maps.DeleteFunc(files, func(_, text string) bool { return text == absent })
	return files
}

func TestTheSettingNamesEveryPlatform(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../packaging/config.yaml")
	require.NoError(t, err)
	line := regexp.MustCompile(`distribution, which sets the default paths: (.*)\.`).FindSubmatch(text)
	require.NotNil(t, line)
	assert.Equal(t, platform.Names(), regexp.MustCompile(`, | or `).Split(string(line[1]), -1))
	_, err = kinds["platform"]("microk8s", nil)
	assert.EqualError(t, err, "want one of "+strings.Join(platform.Names(), ", "))
}

// RKE2's directories of pod manifests and data, from its own configuration.
func TestConfigurationOfRKE2IsFollowed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		files      map[string]string
		data, pods string
		flags      string
		variable   string
	}{
		"as it is":          {nil, "/var/lib/rancher/rke2", rke2Pods, "", ""},
		"before 1.32":       {map[string]string{rke2Kubelet: absent}, "/var/lib/rancher/rke2", rke2Pods, "", ""},
		"another directory": {map[string]string{rke2Config: "data-dir: /srv/rke2\n"}, "/srv/rke2", "/srv/rke2/agent/pod-manifests", "", ""},
		"by a drop-in":      {map[string]string{rke2Config: "data-dir: /a\n", rke2Config + ".d/9.yaml": "data-dir: /b\n"}, "/b", "/b/agent/pod-manifests", "", ""},
		"by a variable":     {map[string]string{rke2Config: "data-dir: /a\n"}, "/v", "/v/agent/pod-manifests", "", "RKE2_DATA_DIR=/v"},
		"by a flag":         {map[string]string{rke2Config: "data-dir: /a\n"}, "/f", "/f/agent/pod-manifests", "--data-dir=/f", ""},
		"by a short flag":   {nil, "/f", "/f/agent/pod-manifests", "-d /f", ""},
		"a key twice":       {map[string]string{rke2Config: "data-dir: /a\ndata-dir: /b\n"}, "/b", "/b/agent/pod-manifests", "", ""},
		"by a file of a flag": {map[string]string{
			rke2Config: "data-dir: /a\n", "/etc/own.yaml": "data-dir: /o\n",
		}, "/o", "/o/agent/pod-manifests", "-c /etc/own.yaml", ""},
		"by the drop-in of a file of a variable": {map[string]string{
			rke2Config: "data-dir: /a\n", "/etc/own.yaml": "",
			"/etc/own.yaml.d/1.YML": "data-dir: /o\n", "/etc/own.yaml.d/2.yml.bak": "data-dir: /no\n",
		}, "/o", "/o/agent/pod-manifests", "", "RKE2_CONFIG_FILE=/etc/own.yaml"},
		"by an alias":             {map[string]string{rke2Config: "a: &d /b\ndata-dir: *d\n"}, "/b", "/b/agent/pod-manifests", "", ""},
		"of no use":               {map[string]string{rke2Config: "data-dir: rke2\n"}, "/var/lib/rancher/rke2", rke2Pods, "", ""},
		"kubelet's":               {map[string]string{rke2Config: "kubelet-arg: [v=2, pod-manifest-path=/p]\n"}, "/var/lib/rancher/rke2", "/p", "", ""},
		"kubelet's, one":          {map[string]string{rke2Config: "kubelet-arg: pod-manifest-path=/p\n"}, "/var/lib/rancher/rke2", "/p", "", ""},
		"kubelet's, another file": {map[string]string{rke2Config: "kubelet-arg: pod-manifest-path=/p\n", rke2Config + ".d/9.yaml": "kubelet-arg: [v=2]\n"}, "/var/lib/rancher/rke2", rke2Pods, "", ""},
		"kubelet's, more": {map[string]string{
			rke2Config: "kubelet-arg: pod-manifest-path=/p\n", rke2Config + ".d/9.yaml": "kubelet-arg+: [v=2]\n",
		}, "/var/lib/rancher/rke2", "/p", "", ""},
		"kubelet's, by a flag": {map[string]string{
			rke2Config: "kubelet-arg: pod-manifest-path=/p\n",
		}, "/var/lib/rancher/rke2", "/q", "--kubelet-arg=pod-manifest-path=/q --kubelet-arg v=2", ""},
		"kubelet's drop-in": {map[string]string{
			strings.Replace(rke2Kubelet, "00-rke2-defaults", "50-mine", 1): "staticPodPath: /m\n",
		}, "/var/lib/rancher/rke2", "/m", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := tree(t, rke2s(c.files))
			got := load(t, Sources{Root: root, Command: asksRKE2(c.flags, c.variable)})
			assert.Equal(t, "rke2", got.Platform.Name)
			assert.Equal(t, c.data, got.Platform.Data)
			assert.Equal(t, root+c.pods, got.Settings.PodManifests)
			assert.Equal(t, root+"/run/k3s/containerd/containerd.sock", got.Settings.CRI.Socket)
			require.NoError(t, got.Unread())
		})
	}
}

func TestValuesOfRKE2HaveTheirOrigin(t *testing.T) {
	t.Parallel()
	root := tree(t, rke2s(map[string]string{rke2Config: "kubelet-arg: [image-gc-high-threshold=91, read-only-port=10255]\n"}))
	entries := load(t, Sources{Root: root}).Entries()
	for _, want := range []Entry{
		{"platform", "", "default"},
		{"podManifests", rke2Pods, root + rke2Kubelet},
		{"containerd.socket", "/run/k3s/containerd/containerd.sock", "default of rke2"},
		{"cri.socket", "/run/k3s/containerd/containerd.sock", "default of rke2"},
		{
			"containerd.certsD", "/var/lib/rancher/rke2/agent/etc/containerd/certs.d",
			root + "/var/lib/rancher/rke2/agent/etc/containerd/config.toml",
		},
		{"templates", "/usr/share/caasp-container-manifests/manifests", "default"},
		{"disk.highMark", "91", root + rke2Config},
		{"kubelet.pods", "http://127.0.0.1:10255/pods", root + rke2Config},
	} {
		assert.Contains(t, entries, want)
	}
	// A flag of its kubelet closes the port, which overrides its files.
	quiet := load(t, Sources{Root: tree(t, rke2s(map[string]string{rke2Kubelet: "readOnlyPort: 10255\n"}))})
	assert.Empty(t, quiet.Settings.Kubelet.Pods)
}

// Two distributions are installed, or the detected one is not the running one.
func TestTheSettingChoosesThePlatform(t *testing.T) {
	t.Parallel()
	files := rke2s(map[string]string{adminFile: "platform: kubeadm\n"})
	root := tree(t, files)
	c := load(t, Sources{Root: root})
	assert.Equal(t, "kubeadm", c.Platform.Name)
	assert.Equal(t, root+"/etc/kubernetes/manifests", c.Settings.PodManifests)
	assert.Equal(t, root+"/run/containerd/containerd.sock", c.Settings.CRI.Socket)
	assert.Contains(t, c.Entries(), Entry{"platform", "kubeadm", root + adminFile + ":1"})

	c = load(t, Sources{Root: tree(t, map[string]string{adminFile: "platform: k3s\n"})})
	assert.Equal(t, "k3s", c.Platform.Name, "nothing of it is there yet")

	_, err := Load(Sources{Root: tree(t, map[string]string{adminFile: "platform: k0s\n"})})
	require.ErrorContains(t, err, `platform: "k0s": want one of caasp, k3s, kubeadm, rke2`)
}

// An unreadable configuration is a problem that doctor names: kubelet may read another directory.
func TestAConfigurationOfRKE2ThatCannotBeReadIsAProblem(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		files map[string]string
		asks  Asks
	}{
		"no YAML":                 {map[string]string{rke2Config: "data-dir: [\n"}, asksRKE2("", "")},
		"no YAML in a drop-in":    {map[string]string{rke2Config + ".d/a.yaml": "- data-dir\n"}, asksRKE2("", "")},
		"systemd is silent":       {nil, func(string) platform.Command { return platform.Command{Err: errors.New("no answer in time")} }},
		"kubelet's is no mapping": {map[string]string{rke2Kubelet: "- a\n"}, asksRKE2("", "")},
		"a named file is gone":    {nil, asksRKE2("--config /etc/gone.yaml", "")},
		"a URL":                   {nil, asksRKE2("--config=https://a.example/b", "")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Error(t, load(t, Sources{Root: tree(t, rke2s(c.files)), Command: c.asks}).Unread())
		})
	}
}
