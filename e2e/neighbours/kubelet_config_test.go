// SPDX-License-Identifier: Apache-2.0

package neighbours

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/internal/node/config"
	"github.com/kubic-project/image-update-agent/internal/node/platform"
	"github.com/kubic-project/image-update-agent/internal/registry/registrytest"
)

// kubeletKeys are keys of kubelet's configuration with their flags and values; the last values are invalid.
var kubeletKeys = []struct {
	key, flag string
	values    []string
}{
	{"staticPodPath", "pod-manifest-path", []string{
		"/etc/kubernetes/manifests", "/a", "/b/", "/c/../d", "//e", "manifests", "./m", `""`, "/with space", "null", "~",
	}},
	{"imageGCHighThresholdPercent", "image-gc-high-threshold", []string{"86", "90", "100", "0x5f", "null", `"95"`, "+92", "high"}},
	{"readOnlyPort", "read-only-port", []string{"10255", "0", "1", "65535", "null", `"10255"`, "0x2810", "-1", "70000"}},
	{"address", "address", []string{"0.0.0.0", `"::"`, "10.0.0.5", `"fd00::5"`, "127.0.0.1", "null", "node", `""`, "010.0.0.1"}},
	{"clusterDomain", "cluster-domain", []string{"cluster.local", "null"}},
	{"failSwapOn", "fail-swap-on", []string{"true", "false"}},
}

// kubeletSetup is the configuration of a kubelet in its own directory.
type kubeletSetup struct {
	args  []string
	files map[string]string // by path below the directory
}

const kubeletHead = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"

func randomKubelet(r *rand.Rand, dir string) kubeletSetup {
	in := kubeletSetup{files: map[string]string{
		"var/lib/kubelet/config.yaml": kubeletHead + "staticPodPath: /where-no-unit-is\n", // kubelet has no such default
	}}
	if r.IntN(4) > 0 {
		in.files["etc/k.yaml"] = randomKubeletFile(r, 12)
		in.args = append(in.args, oneOf(r, "--config=", "--config=", "-config=")+filepath.Join(dir, "etc/k.yaml"))
	}
	if r.IntN(3) == 0 {
		in.files["conf.d/10-a.conf"] = randomKubeletFile(r, 0)
		for range r.IntN(3) {
			name := oneOf(r, "90-site.conf", "20.conf", "sub/05.conf", "sub.conf/1.conf", "b.yaml", "c.conf.bak", ".conf", "UP.CONF")
			in.files["conf.d/"+name] = randomKubeletFile(r, 0)
		}
		in.args = append(in.args, "--config-dir="+filepath.Join(dir, "conf.d"))
	}
	for range r.IntN(4) {
		k := kubeletKeys[r.IntN(len(kubeletKeys))]
		name, value := k.flag, strings.Trim(oneOf(r, k.values...), `"`)
		if r.IntN(4) == 0 {
			name = strings.ReplaceAll(name, "-", "_")
		}
		if r.IntN(2) == 0 || k.flag == "fail-swap-on" {
			in.args = append(in.args, "--"+name+"="+value)
		} else {
			in.args = append(in.args, "--"+name, value)
		}
	}
	for range r.IntN(3) {
		in.args = append(in.args, [][]string{
			{"--fail-swap-on"},
			{"--v=2"},
			{"-v", "2"},
			{"-v2"},
			{"--node-labels=a=b"},
			{"--"},
			{"--cgroup-driver", "systemd"},
			{"--config-dir", filepath.Join(dir, "conf.d")},
			{"--config="},
			{"--config-dir="},
		}[r.IntN(10)]...)
	}
	return in
}

// randomKubeletFile returns a kubelet configuration file in YAML or JSON, complete or truncated. One of otherCase keys
// has another case; 0: none. The agent intentionally ignores such a key in a drop-in, where kubelet accepts some of
// them.
func randomKubeletFile(r *rand.Rand, otherCase int) string {
	pairs := map[string]string{}
	for range r.IntN(4) {
		k := kubeletKeys[r.IntN(len(kubeletKeys))]
		key := k.key
		if otherCase > 0 && r.IntN(otherCase) == 0 {
			key = strings.ToUpper(key[:1]) + key[1:]
		}
		pairs[key] = oneOf(r, k.values...)
	}
	if r.IntN(5) == 0 {
		text := `{"apiVersion":"kubelet.config.k8s.io\/v1beta1","kind":"KubeletConfiguration"`
		for _, key := range slices.Sorted(maps.Keys(pairs)) {
			value := pairs[key]
			if !strings.Contains(`"[0123456789nf`, value[:1]) || strings.HasPrefix(value, "0") && value != "0" || value == "node" {
				value = strings.ReplaceAll(strconv.Quote(value), "/", `\/`)
			}
			text += fmt.Sprintf(", %q: %s", key, value)
		}
		return text + "}"
	}
	text := kubeletHead
	for _, key := range slices.Sorted(maps.Keys(pairs)) {
		text += key + ": " + pairs[key] + "\n"
	}
	switch r.IntN(24) {
	case 0:
		return strings.TrimPrefix(text, kubeletHead) // without kind
	case 1:
		return text + "staticPodPath: /twice\nstaticPodPath: /thrice\n"
	case 2:
		return text + "unknownKey: 1\n"
	case 3:
		return "---\n" + text + "---\n" + kubeletHead + "staticPodPath: /second\n"
	case 4:
		return "# comment\n" + text + "evictionHard: {memory.available: 100Mi}\n"
	case 5:
		return ""
	}
	return text
}

// starts is systemd's word on kubelet's unit: it starts a kubelet with the setup.
func (in kubeletSetup) starts(dir string) config.Asks {
	words := []string{"/usr/bin/kubelet"}
	for _, arg := range in.args {
		words = append(words, strings.Replace(arg, dir, "", 1))
	}
	return func(string) platform.Command { return platform.Command{Words: words} }
}

// readOnly returns the URL of the pod list that kubelet serves without a login; empty: none. The agent intentionally
// asks no host whose name it would have to resolve.
func (c kubeletConfig) readOnly() string {
	address := strings.NewReplacer("0.0.0.0", "127.0.0.1").Replace(c.Address)
	if address == "::" {
		address = "::1"
	}
	if c.ReadOnlyPort == 0 || c.Address == "node" || c.Address == "010.0.0.1" {
		return ""
	}
	return "http://" + net.JoinHostPort(address, strconv.Itoa(c.ReadOnlyPort)) + "/pods"
}

// TestKubeletsConfigurationIsReadAsByKubelet checks that the agent reads kubelet's command line, file and drop-ins as kubelet's own code does. It skips a setup with which kubelet does not start. One difference is
// intentional: for the agent, a flag that needs a value never takes the next flag as its value, as kubelet does, since
// that is a mistake, and no list of kubelet's flags would be correct for all versions.
func TestKubeletsConfigurationIsReadAsByKubelet(t *testing.T) {
	t.Parallel()
	k := startKubelet(t, "kubelet-configuration")
	rounds, r := inputs(t, 2000)
	compared := 0
	for n := range rounds {
		dir := filepath.Join(t.TempDir(), "root")
		in := randomKubelet(r, dir)
		for name, text := range in.files {
			registrytest.Put(t, dir, "/"+name, text)
		}
		want := k.ask(map[string]any{"args": append([]string{"kubelet"}, in.args...)}, dir).Config
		if want.Refused != "" {
			require.NoError(t, os.RemoveAll(dir))
			continue
		}
		compared++
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			k := config.ReadKubelet(platform.Detect(dir), in.starts(dir))
			require.NoError(t, errors.Join(k.Problems...), "%+v", in)
			pods := ""
			if want.StaticPodPath != "" {
				pods = filepath.Join("/", strings.TrimPrefix(want.StaticPodPath, dir))
			}
			assert.Equal(t, pods, k.PodManifests(), "%+v", in)
			c, err := config.Load(config.Sources{Root: dir, Command: in.starts(dir)})
			require.NoError(t, err, "%+v", in)
			assert.Equal(t, want.ImageGCHigh, c.Settings.Disk.HighMark, "%+v", in)
			assert.Equal(t, want.readOnly(), c.Settings.Kubelet.Pods, "%+v", in)
		})
		require.NoError(t, os.RemoveAll(dir))
	}
	assert.Greater(t, compared, rounds/4)
}
