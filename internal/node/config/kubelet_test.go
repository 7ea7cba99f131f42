// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/internal/node/platform"
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
			assert.Equal(t, c.want, k.values["staticPodPath"])
			if c.want != "" {
				assert.Equal(t, c.want, k.PodManifests())
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

func TestNumbersOfKubelet(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		text string
		asks Asks
		mark int
		pods string
	}{
		"as kubelet counts": {"imageGCHighThresholdPercent: 0x5a\nreadOnlyPort: +10255\n", kubelets(""), 90, "http://127.0.0.1:10255/pods"},
		"flags":             {"", kubelets("--image-gc-high-threshold=0x5a --read-only-port=0x2810 --address="), 90, "http://127.0.0.1:10256/pods"},
		"no file":           {"", starts("/usr/bin/kubelet --v=2"), 85, "http://127.0.0.1:10255/pods"},
	} {
		c2 := load(t, Sources{Root: tree(t, map[string]string{kubeletFile: c.text}), Command: c.asks})
		assert.Equal(t, c.mark, c2.Settings.Disk.HighMark, name)
		assert.Equal(t, c.pods, c2.Settings.Kubelet.Pods, name)
	}
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
