// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAWindowIsALineInTheMergedList(t *testing.T) {
	t.Parallel()
	root := tree(t, map[string]string{
		vendorFile: "apply: {mode: auto, windows: [{start: 02:00, length: 1h}, {start: 02:00, length: 1h}]}\n",
		adminFile:  "apply: {order: [a.yaml]}\n",
	})
	assert.Len(t, load(t, Sources{Root: root}).Settings.Apply.Windows, 2, "windows have no names, so none is repeated")

	root = tree(t, map[string]string{
		vendorFile:           "apply: {mode: auto, order: [a.yaml, b.yaml], windows: [{start: 02:00, length: 1h}]}\n",
		adminFile:            "apply: {order: [c.yaml], windows: [{start: 02:00, length: 2h, zone: UTC}, {start: 05:00, length: 1h}]}\n",
		dropIns + "/10.yaml": "apply: {freeze: 2026-12-24T18:00:00+01:00}\n",
	})
	c := load(t, Sources{Root: root})
	got := c.Settings.Apply
	assert.Equal(t, []string{"c.yaml"}, got.Order, "a list replaces")
	assert.Len(t, got.Windows, 2, "a list of windows, too")
	assert.Equal(t, 2*time.Hour, got.Windows[0].Length)
	assert.Equal(t, ApplyAuto, got.Mode, "a section is merged")
	assert.Equal(t, "2026-12-24T17:00:00Z", got.Freeze.UTC().Format(time.RFC3339))
	assert.Contains(t, c.Entries(), Entry{"apply.windows[0].zone", "UTC", root + adminFile + ":1"})

	root = tree(t, map[string]string{
		adminFile:            "apply: {mode: auto, windows: [{start: 02:00, length: 1h}]}\n",
		dropIns + "/10.yaml": "apply: {windows: []}\n",
	})
	got = load(t, Sources{Root: root}).Settings.Apply
	assert.Empty(t, got.Windows)
	open, _ := got.Windows.Open(time.Now())
	assert.True(t, open, "a drop-in can open what the admin's file closes")
}

func TestWindowsWithoutAuto(t *testing.T) {
	t.Parallel()
	root := tree(t, map[string]string{adminFile: "apply: {windows: [{start: 02:00, length: 1h}]}\n"})
	got := load(t, Sources{Root: root}).Settings.Apply
	assert.Equal(t, "manual", got.Mode)
	assert.Len(t, got.Windows, 1)
	assert.Zero(t, got.Freeze)
	assert.Empty(t, got.Order)
}

func TestAListOfDaysIsASet(t *testing.T) {
	t.Parallel()
	for days, want := range map[string][]time.Weekday{
		"":                        {0, 1, 2, 3, 4, 5, 6},
		"days: [], ":              {0, 1, 2, 3, 4, 5, 6},
		"days: [sat, fri-sat], ":  {time.Friday, time.Saturday},
		"days: [sat, Sun, sat], ": {time.Sunday, time.Saturday},
	} {
		root := tree(t, map[string]string{adminFile: "apply: {windows: [{" + days + "start: 02:00, length: 1h}]}\n"})
		windows := load(t, Sources{Root: root}).Settings.Apply.Windows
		require.Len(t, windows, 1)
		var begins []time.Weekday
		for day := range 7 { // the 6th of December 2026 is a Sunday
			open, change := windows.Open(time.Date(2026, time.December, 6+day, 2, 0, 0, 0, time.Local))
			if open {
				begins = append(begins, time.Weekday(day))
				assert.Equal(t, time.Date(2026, time.December, 6+day, 3, 0, 0, 0, time.Local), change, "and once")
			}
		}
		assert.Equal(t, want, begins, days)
	}
}

func TestOverlongPatternOfFilesIsRejected(t *testing.T) {
	t.Parallel()
	require.NoError(t, filePattern(strings.Repeat("a", maxPattern)))
	require.Error(t, filePattern(strings.Repeat("a", maxPattern+1)))
}

// podLists are texts for kubelet.pods, and whether they are valid.
var podLists = map[string]bool{
	"":                                       true,
	"off":                                    true,
	"http://127.0.0.1:10255/pods":            true,
	"https://localhost:10250/pods":           true,
	"http://[::1]:10255/pods":                true,
	"http://10.0.0.5:10255/pods":             true,
	"on":                                     false,
	"127.0.0.1:10255":                        false,
	"http://127.0.0.1/pods":                  false,
	"http://127.0.0.1:0/pods":                false,
	"http://127.0.0.1:65536/pods":            false,
	"http://127.0.0.1:port/pods":             false,
	"http://127.0.0.1:10255":                 false,
	"http://127.0.0.1:10255/pods/":           false,
	"http://127.0.0.1:10255/runningpods":     false,
	"http://127.0.0.1:10255/pods?a=b":        false,
	"http://127.0.0.1:10255/pods?":           false,
	"http://127.0.0.1:10255/pods#a":          false,
	"http://user:secret@127.0.0.1:1025/pods": false,
	"unix:///run/kubelet.sock":               false,
	"ftp://127.0.0.1:10255/pods":             false,
	"http://kubelet.example.org:10255/pods":  false,
	"http://localhost.example.org:1025/pods": false,
	"http://0.0.0.0:10255/pods":              false,
	"http://[::]:10255/pods":                 false,
	"http://224.0.0.1:10255/pods":            false,
	"http://[fe80::1%25eth0]:10255/pods":     false,
	"http://:10255/pods":                     false,
	"http://127.0.0.1:10255/%zz":             false,
}

func TestPodList(t *testing.T) {
	t.Parallel()
	for text, allowed := range podLists {
		_, err := read("x", "", fmt.Sprintf("kubelet: {pods: %q}", text))
		assert.Equal(t, allowed, err == nil, text)
	}
}

// readOnlyPorts map kubelet's configurations to the URL of its list of pods.
var readOnlyPorts = map[string]string{
	"readOnlyPort: 10255\n":                      "http://127.0.0.1:10255/pods",
	"readOnlyPort: 10255\naddress: 0.0.0.0\n":    "http://127.0.0.1:10255/pods",
	"readOnlyPort: 10255\naddress: '::'\n":       "http://[::1]:10255/pods",
	"readOnlyPort: 10255\naddress: 10.0.0.5\n":   "http://10.0.0.5:10255/pods",
	"readOnlyPort: 10255\naddress: fd00::5\n":    "http://[fd00::5]:10255/pods",
	"readOnlyPort: 10255\naddress: node\n":       "",
	"readOnlyPort: 10255\naddress: fe80::1%eth0": "",
	"readOnlyPort: 0\n":                          "",
	"readOnlyPort: -1\n":                         "",
	"readOnlyPort: 65536\n":                      "",
	"readOnlyPort: open\n":                       "",
	"port: 10250\n":                              "",
	"readOnlyPort: [":                            "",
}

func TestReadOnlyPods(t *testing.T) {
	t.Parallel()
	for text, want := range readOnlyPorts {
		root := tree(t, map[string]string{kubeletFile: text})
		assert.Equal(t, want, load(t, Sources{Root: root}).Settings.Kubelet.Pods, text)
	}
}

// An empty value in any file means kubelet's own port; `config show` prints the effective value, which can be read
// back.
func TestEmptyPodListIsKubelets(t *testing.T) {
	t.Parallel()
	const kubelet, own = "readOnlyPort: 10255\n", "kubelet: {pods: 'http://[::1]:1/pods'}"
	for name, c := range map[string]struct {
		files       map[string]string
		want, shown string
	}{
		"nobody says":  {nil, "", ""},
		"kubelet":      {map[string]string{kubeletFile: kubelet}, "http://127.0.0.1:10255/pods", "http://127.0.0.1:10255/pods"},
		"empty over":   {map[string]string{kubeletFile: kubelet, vendorFile: own, adminFile: "kubelet: {pods: ''}"}, "http://127.0.0.1:10255/pods", "http://127.0.0.1:10255/pods"},
		"ours wins":    {map[string]string{kubeletFile: kubelet, adminFile: own}, "http://[::1]:1/pods", "http://[::1]:1/pods"},
		"ours alone":   {map[string]string{adminFile: own}, "http://[::1]:1/pods", "http://[::1]:1/pods"},
		"off":          {map[string]string{kubeletFile: kubelet, adminFile: "kubelet: {pods: off}"}, "", "off"},
		"port is shut": {map[string]string{kubeletFile: "readOnlyPort: 0"}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := tree(t, c.files)
			got := load(t, Sources{Root: root})
			assert.Equal(t, c.want, got.Settings.Kubelet.Pods)
			for _, entry := range got.Entries() {
				if entry.Key == "kubelet.pods" {
					assert.Equal(t, c.shown, entry.Value)
				}
			}
			shown, err := got.YAML()
			require.NoError(t, err)
			again := load(t, Sources{Root: tree(t, map[string]string{kubeletFile: c.files[kubeletFile], adminFile: string(shown)})})
			assert.Equal(t, got.Settings.Kubelet, again.Settings.Kubelet)
		})
	}
}
