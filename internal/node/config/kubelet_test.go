// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/internal/node/platform"
)

const (
	kubeletUnit = "/usr/lib/systemd/system/kubelet.service"
	kubeadmConf = "/usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf"
	kubeadmEnv  = "/var/lib/kubelet/kubeadm-flags.env"
)

// kubeadms returns the unit and the drop-in of kubeadm's packages.
func kubeadms(more map[string]string) map[string]string {
	files := map[string]string{
		kubeletUnit: "[Service]\nExecStart=/usr/bin/kubelet\nRestart=always\n",
		kubeadmConf: `# Note: This dropin only works with kubeadm and kubelet v1.11+
[Service]
Environment="KUBELET_KUBECONFIG_ARGS=--bootstrap-kubeconfig=/etc/b.conf --kubeconfig=/etc/k.conf"
Environment="KUBELET_CONFIG_ARGS=--config=/var/lib/kubelet/config.yaml"
EnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env
EnvironmentFile=-/etc/sysconfig/kubelet
ExecStart=
ExecStart=/usr/bin/kubelet $KUBELET_KUBECONFIG_ARGS $KUBELET_CONFIG_ARGS $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS
`,
		kubeletFile: "staticPodPath: /etc/kubernetes/manifests\n",
	}
	maps.Copy(files, more)
	return files
}

func extra(flags string) map[string]string {
	return kubeadms(map[string]string{"/etc/sysconfig/kubelet": "# mine\nKUBELET_EXTRA_ARGS=" + flags + "\n"})
}

// The order is kubelet's: the file, overridden by the *.conf of --config-dir by name, then by the flags
// (k8s.io/kubernetes v1.34.4, cmd/kubelet/app/server.go).
func TestKubeletsConfigurationIsReadAsByKubelet(t *testing.T) {
	t.Parallel()
	const dir = "/etc/kubernetes/kubelet.conf.d"
	const site = "staticPodPath: /var/lib/static\nimageGCHighThresholdPercent: 70\nreadOnlyPort: 10255\n"
	with := func(flags string, files map[string]string) map[string]string {
		all := extra(flags)
		maps.Copy(all, files)
		return all
	}
	for name, c := range map[string]struct {
		files map[string]string
		want  string
	}{
		"no unit":            {map[string]string{kubeletFile: "staticPodPath: /a\n"}, "/a"},
		"kubeadm":            {kubeadms(nil), "/etc/kubernetes/manifests"},
		"drop-ins":           {with("--config-dir="+dir, map[string]string{dir + "/90-site.conf": site}), "/var/lib/static"},
		"flag and value":     {with(`"--config-dir `+dir+`"`, map[string]string{dir + "/90-site.conf": site}), "/var/lib/static"},
		"last name wins":     {with("--config-dir="+dir, map[string]string{dir + "/90-site.conf": site, dir + "/95.conf": "staticPodPath: /b\n"}), "/b"},
		"by name, not age":   {with("--config-dir="+dir, map[string]string{dir + "/90-site.conf": site, dir + "/10.conf": "staticPodPath: /b\n"}), "/var/lib/static"},
		"below":              {with("--config-dir="+dir, map[string]string{dir + "/sub/a.conf": site}), "/var/lib/static"},
		"only *.conf":        {with("--config-dir="+dir, map[string]string{dir + "/90-site.yaml": site, dir + "/a.conf.bak": site}), "/etc/kubernetes/manifests"},
		"JSON":               {with("--config-dir="+dir, map[string]string{dir + "/a.conf": `{"staticPodPath": "/b\/c"}`}), "/b/c"},
		"null takes it back": {with("--config-dir="+dir, map[string]string{dir + "/a.conf": "staticPodPath: null\n"}), ""},
		"not named":          {kubeadms(map[string]string{dir + "/90-site.conf": site}), "/etc/kubernetes/manifests"},
		"flag":               {extra("--pod-manifest-path=/f/"), "/f"},
		"flag over drop-in":  {with("--config-dir="+dir+" --pod-manifest-path /f", map[string]string{dir + "/90-site.conf": site}), "/f"},
		"underscores":        {extra("--pod_manifest_path=/f"), "/f"},
		"last flag":          {extra("--pod-manifest-path=/f --pod-manifest-path=/g"), "/g"},
		"below its file":     {with("--config=/etc/k/k.yaml", map[string]string{"/etc/k/k.yaml": "staticPodPath: m\n"}), "/etc/k/m"},
		"below the root":     {extra("--pod-manifest-path=m"), "/m"},
		"twice in a file":    {with("--config=/etc/k.yaml", map[string]string{"/etc/k.yaml": "staticPodPath: /k\nstaticPodPath: /l\n"}), "/l"},
		"no file is named":   {map[string]string{kubeletUnit: "[Service]\nExecStart=/usr/bin/kubelet\n", kubeletFile: "staticPodPath: /a\n"}, ""},
		"quoted":             {extra(`"--v=2 --pod-manifest-path=/f"`), "/f"},
		"kubeadm's flags":    {kubeadms(map[string]string{kubeadmEnv: `KUBELET_KUBEADM_ARGS="--pod-manifest-path=/f"` + "\n"}), "/f"},
		"another file":       {with("--config=/etc/k.yaml", map[string]string{"/etc/k.yaml": "staticPodPath: /k\n"}), "/k"},
		"admin's drop-in": {kubeadms(map[string]string{
			"/etc/systemd/system/kubelet.service.d/20-mine.conf": "[Service]\nEnvironment=KUBELET_EXTRA_ARGS=--pod-manifest-path=/m\n",
		}), "/m"},
		"drop-in of the same name": {kubeadms(map[string]string{
			"/etc/systemd/system/kubelet.service.d/10-kubeadm.conf": "[Service]\nExecStart=\nExecStart=/usr/bin/kubelet --config=${X}.yaml \\\n  --pod-manifest-path /m\nEnvironment=X=/var/lib/kubelet/config\n",
		}), "/m"},
		"admin's unit": {map[string]string{
			kubeletUnit:                           "[Service]\nExecStart=/usr/bin/kubelet --pod-manifest-path=/a\n",
			"/etc/systemd/system/kubelet.service": "[Service]\nExecStart=-/usr/local/bin/kubelet --pod-manifest-path='/b'\n",
		}, "/b"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := tree(t, c.files)
			k := readKubelet(platform.Detect(root))
			require.NoError(t, errors.Join(k.problems...))
			assert.Equal(t, c.want, k.values["staticPodPath"])
			if c.want != "" {
				assert.Equal(t, root+c.want, StaticPodPath(platform.Detect(root)))
				assert.Equal(t, root+c.want, load(t, Sources{Root: root}).Settings.PodManifests)
			}
		})
	}
}

func TestEveryValueOfKubeletsDropInsCounts(t *testing.T) {
	t.Parallel()
	root := tree(t, kubeadms(map[string]string{
		"/etc/sysconfig/kubelet": "KUBELET_EXTRA_ARGS=--config-dir=/d --image-gc-high-threshold=60\n",
		"/d/90-site.conf":        "imageGCHighThresholdPercent: 70\nreadOnlyPort: 10255\naddress: 10.0.0.1\n",
	}))
	c := load(t, Sources{Root: root})
	assert.Equal(t, 60, c.Settings.Disk.HighMark)
	assert.Equal(t, "http://10.0.0.1:10255/pods", c.Settings.Kubelet.Pods)
	assert.Contains(t, c.Entries(), Entry{Key: "disk.highMark", Value: "60", Origin: root + kubeletUnit})
	assert.Contains(t, c.Entries(), Entry{Key: "kubelet.pods", Value: "http://10.0.0.1:10255/pods", Origin: root + "/d/90-site.conf"})
}

func TestNumbersOfKubelet(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		files map[string]string
		mark  int
		pods  string
	}{
		"as kubelet counts": {kubeadms(map[string]string{kubeletFile: "imageGCHighThresholdPercent: 0x5a\nreadOnlyPort: +10255\n"}), 90, "http://127.0.0.1:10255/pods"},
		"flags":             {extra("--image-gc-high-threshold=0x5a --read-only-port=0x2810 --address="), 90, "http://127.0.0.1:10256/pods"},
		"no file":           {map[string]string{kubeletUnit: "[Service]\nExecStart=/usr/bin/kubelet --v=2\n"}, 85, "http://127.0.0.1:10255/pods"},
	} {
		c2 := load(t, Sources{Root: tree(t, c.files)})
		assert.Equal(t, c.mark, c2.Settings.Disk.HighMark, name)
		assert.Equal(t, c.pods, c2.Settings.Kubelet.Pods, name)
	}
}

// Unreadable parts are reported: the values may differ then.
func TestUnreadableKubeletConfigurationIsReported(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		files map[string]string
		want  string
	}{
		"broken file":           {map[string]string{kubeletFile: "staticPodPath: [\n"}, "config.yaml"},
		"value of another type": {map[string]string{kubeletFile: "staticPodPath: [a]\n"}, "line 1: staticPodPath: not a text"},
		"missing file":          {extra("--config=/none.yaml"), "none.yaml"},
		"missing directory":     {extra("--config-dir=/none"), "none"},
		"broken drop-in":        {kubeadms(map[string]string{"/etc/sysconfig/kubelet": "KUBELET_EXTRA_ARGS=--config-dir=/d\n", "/d/a.conf": "\t"}), "a.conf"},
		"a script":              {map[string]string{kubeletUnit: "[Service]\nExecStart=/opt/start-kubelet\n"}, "cannot read its flags"},
		"an environment file":   {map[string]string{kubeletUnit: "[Service]\nEnvironmentFile=/none\nExecStart=/usr/bin/kubelet\n"}, "none"},
		"large unit":            {map[string]string{kubeletUnit: "[Service]\n" + strings.Repeat("#", 256<<10)}, "kubelet.service"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := tree(t, c.files)
			problems := KubeletProblems(platform.Detect(root))
			require.NotEmpty(t, problems)
			assert.ErrorContains(t, errors.Join(problems...), c.want)
			unread := load(t, Sources{Root: root}).Unread()
			require.ErrorContains(t, unread, "cannot tell which directory kubelet reads: ")
			assert.ErrorContains(t, unread, c.want)
			named := filepath.Join(t.TempDir(), "config.yaml")
			require.NoError(t, os.WriteFile(named, []byte("podManifests: /manifests\n"), 0o600))
			assert.NoError(t, load(t, Sources{Root: root, File: named}).Unread(), "the agent's configuration names it")
		})
	}
}
