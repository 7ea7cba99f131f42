// SPDX-License-Identifier: Apache-2.0

package manifests_test

import (
	"cmp"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/manifests"
)

const (
	ports  = "\n    ports: [{name: web, containerPort: 8080}, {name: other, containerPort: 1}, {name: '90', containerPort: 91}, {name: none}, {name: far, containerPort: 70000}, {name: web, containerPort: 2}]"
	ready  = "\n    readinessProbe: "
	second = time.Second
)

func httpGet(port int) manifests.Probe {
	return filled(manifests.Probe{Kind: "httpGet", Port: port, Scheme: "HTTP", Path: "/"})
}

// filled fills in kubelet's defaults.
func filled(p manifests.Probe) manifests.Probe {
	p.Container, p.Type = cmp.Or(p.Container, "c"), cmp.Or(p.Type, manifests.ProbeReadiness)
	p.Timeout, p.Period = cmp.Or(p.Timeout, second), cmp.Or(p.Period, 10*second)
	p.Successes, p.Failures = cmp.Or(p.Successes, 1), cmp.Or(p.Failures, 3)
	p.Grace = cmp.Or(p.Grace, 30*time.Second)
	return p
}

// probesWritten maps the YAML below the image of pod to the parsed probe; a probe without kind means that there is
// none.
var probesWritten = map[string]struct {
	container string
	want      manifests.Probe
}{
	"none":                       {"", manifests.Probe{}},
	"null":                       {ready, manifests.Probe{}},
	"empty":                      {ready + "{}", manifests.Probe{}},
	"text":                       {ready + "x", manifests.Probe{}},
	"list":                       {ready + "[{httpGet: {port: 80}}]", manifests.Probe{}},
	"no handler":                 {ready + "{periodSeconds: 1, httpGet: }", manifests.Probe{}},
	"liveness":                   {"\n    livenessProbe: {tcpSocket: {port: 80}}", filled(manifests.Probe{Type: "liveness", Kind: "tcpSocket", Port: 80})},
	"a grace period":             {"\n    livenessProbe: {tcpSocket: {port: 80}, terminationGracePeriodSeconds: 4}", filled(manifests.Probe{Type: "liveness", Kind: "tcpSocket", Port: 80, Grace: 4 * second})},
	"a wrong grace period":       {"\n    livenessProbe: {tcpSocket: {port: 80}, terminationGracePeriodSeconds: 0}", filled(manifests.Probe{Type: "liveness", Kind: "tcpSocket", Port: 80})},
	"startup, all numbers":       {"\n    startupProbe: {tcpSocket: {port: 80}, initialDelaySeconds: 4, periodSeconds: 5, failureThreshold: 24, successThreshold: 2}", filled(manifests.Probe{Type: "startup", Kind: "tcpSocket", Port: 80, Delay: 4 * second, Period: 5 * second, Failures: 24, Successes: 2})},
	"numbers out of range":       {ready + "{tcpSocket: {port: 80}, initialDelaySeconds: -4, periodSeconds: 0, failureThreshold: 0, successThreshold: -1}", filled(manifests.Probe{Kind: "tcpSocket", Port: 80})},
	"http":                       {ready + "{httpGet: {port: 80}}", httpGet(80)},
	"http, numbers around":       {ready + "{periodSeconds: 10, httpGet: {port: 80}, failureThreshold: 3}", httpGet(80)},
	"http, explicit nulls":       {ready + "{httpGet: {port: 80, path: , scheme: ~, host: null, httpHeaders: }, timeoutSeconds: }", httpGet(80)},
	"http, empty words":          {ready + "{httpGet: {port: 80, path: '', scheme: '', host: ''}}", httpGet(80)},
	"named port":                 {ports + ready + "{httpGet: {port: web}}", httpGet(8080)},
	"named port, probe first":    {ready + "{httpGet: {port: web}}" + ports, httpGet(8080)},
	"port in quotes":             {ports + ready + "{httpGet: {port: '8081'}}", httpGet(8081)},
	"name that reads as number":  {ports + ready + "{httpGet: {port: '90'}}", httpGet(91)},
	"number that reads as name":  {ports + ready + "{httpGet: {port: 90}}", httpGet(90)},
	"unknown port name":          {ports + ready + "{httpGet: {port: admin}}", httpGet(0)},
	"port name without number":   {ports + ready + "{httpGet: {port: none}}", httpGet(0)},
	"port name, number too high": {ports + ready + "{httpGet: {port: far}}", httpGet(0)},
	"no port":                    {ports + ready + "{httpGet: {path: /}}", httpGet(0)},
	"port too high":              {ready + "{httpGet: {port: 65536}}", httpGet(0)},
	"highest port":               {ready + "{httpGet: {port: 65535}}", httpGet(65535)},
	"negative port":              {ready + "{httpGet: {port: -1}}", httpGet(0)},
	"port of many digits":        {ready + "{httpGet: {port: 99999999999999999999}}", httpGet(0)},
	"port in quotes, too high":   {ready + "{httpGet: {port: '4294967376'}}", httpGet(0)},
	"port with a fraction":       {ready + "{httpGet: {port: 80.5}}", httpGet(0)},
	"port list":                  {ready + "{httpGet: {port: [80]}}", httpGet(0)},
	"ports that are none":        {"\n    ports: x" + ready + "{httpGet: {port: web}}", httpGet(0)},
	"broken timeout":             {ready + "{httpGet: {port: 80}, timeoutSeconds: soon}", httpGet(80)},
	"no time":                    {ready + "{httpGet: {port: 80}, timeoutSeconds: 0}", httpGet(80)},
	"negative time":              {ready + "{httpGet: {port: 80}, timeoutSeconds: -5}", httpGet(80)},
	"two handlers":               {ready + "{httpGet: {port: 80}, exec: {command: [a]}}", httpGet(80)},
	"all of http": {
		ready + "{timeoutSeconds: 7, httpGet: {port: 443, path: '/a?b=c', scheme: HTTPS, host: h.example, httpHeaders: [{name: Host, value: v.example}, {name: X, value: ''}]}}",
		filled(manifests.Probe{
			Kind: "httpGet", Host: "h.example", Port: 443, Scheme: "HTTPS", Path: "/a?b=c",
			Headers: []manifests.Header{{Name: "Host", Value: "v.example"}, {Name: "X"}}, Timeout: 7 * second,
		}),
	},
	"as kubeadm writes it": {
		"\n    readinessProbe:\n      failureThreshold: 3\n      httpGet:\n        host: 10.0.0.11\n        path: /readyz\n        port: 6443\n        scheme: HTTPS\n      periodSeconds: 1\n      timeoutSeconds: 15",
		filled(manifests.Probe{Kind: "httpGet", Host: "10.0.0.11", Port: 6443, Scheme: "HTTPS", Path: "/readyz", Timeout: 15 * second, Period: second}),
	},
	"endless time": {
		ready + "{tcpSocket: {port: 80}, timeoutSeconds: 9223372036854775807}",
		filled(manifests.Probe{Kind: "tcpSocket", Port: 80, Timeout: (1<<31 - 1) * second}),
	},
	"tcp": {
		ports + ready + "{tcpSocket: {port: web, host: h.example, path: /x, scheme: HTTPS, httpHeaders: [{name: X}]}, timeoutSeconds: 2}",
		filled(manifests.Probe{Kind: "tcpSocket", Host: "h.example", Port: 8080, Timeout: 2 * second}),
	},
	"exec": {ready + "{timeoutSeconds: 2, exec: {command: [mysqladmin, ping]}}", filled(manifests.Probe{Kind: "exec", Command: []string{"mysqladmin", "ping"}, Timeout: 2 * second})},
	"exec with variables": {
		"\n    env: [{name: A, value: a}, {name: B, valueFrom: {fieldRef: {fieldPath: status.podIP}}}]" + ready + "{exec: {command: ['$(A)$(B)-$(C)', '$$(A)', '$A $', '$(A', '$($(A))']}}",
		filled(manifests.Probe{Kind: "exec", Command: []string{"a-$(C)", "$(A)", "$A $", "$(A", "$($(A))"}}),
	},
	"grpc":    {ready + "{grpc: {port: 80, service: own, host: none}}", filled(manifests.Probe{Kind: "grpc", Port: 80, Service: "own"})},
	"unknown": {ready + "{udpSocket: {port: 80}}", filled(manifests.Probe{Kind: "udpSocket", Port: 80})},
}

func TestParseProbe(t *testing.T) {
	t.Parallel()
	for name, tc := range probesWritten {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, err := manifests.Parse([]byte(pod("a:1" + tc.container)))
			require.NoError(t, err)
			if tc.want.Kind == "" {
				assert.Empty(t, p.Probes)
				return
			}
			assert.Equal(t, []manifests.Probe{tc.want}, p.Probes)
		})
	}
}

// Kubelet probes the regular containers of the first document and its sidecars, the init containers with restartPolicy
// Always (pkg/kubelet/prober/prober_manager.go, AddPod); anchors and merge keys are followed.
func TestParseProbesInOrder(t *testing.T) {
	t.Parallel()
	p, err := manifests.Parse([]byte("x: &probe {readinessProbe: &r {tcpSocket: {port: 2}}}\n" +
		strings.TrimSuffix(podHead, "  containers:\n") +
		"  initContainers:\n  - {name: i, image: 'a:1', readinessProbe: *r}\n" +
		"  - {name: sidecar, image: 'a:1', restartPolicy: Always, readinessProbe: {httpGet: {port: http}}," +
		" ports: [{name: http, containerPort: 80}]}\n" +
		"  - {name: j, image: 'a:1', restartPolicy: OnFailure, readinessProbe: *r}\n" +
		"  containers:\n" +
		"  - {name: a, image: 'a:1', readinessProbe: {exec: {}}}\n" +
		"  - {name: none, image: 'a:1'}\n" +
		"  - {name: b, image: 'a:1', <<: *probe}\n" +
		"  - {name: c, image: 'a:1', readinessProbe: *r, livenessProbe: *r, startupProbe: *r}\n" +
		"---\n" + pod("a:1\n    readinessProbe: {exec: {}}")))
	require.NoError(t, err)
	assert.Equal(t, []manifests.Probe{
		filled(manifests.Probe{Container: "a", Kind: "exec"}),
		filled(manifests.Probe{Container: "b", Kind: "tcpSocket", Port: 2}),
		filled(manifests.Probe{Container: "c", Type: "startup", Kind: "tcpSocket", Port: 2}),
		filled(manifests.Probe{Container: "c", Type: "liveness", Kind: "tcpSocket", Port: 2}),
		filled(manifests.Probe{Container: "c", Kind: "tcpSocket", Port: 2}),
		filled(manifests.Probe{Container: "sidecar", Kind: "httpGet", Port: 80, Scheme: "HTTP", Path: "/"}),
	}, p.Probes)
}

func TestParseHostNetwork(t *testing.T) {
	t.Parallel()
	for written, want := range map[string]bool{
		"": false, "  hostNetwork: true\n": true, "  hostNetwork: false\n": false, "  hostNetwork: yes\n": true, "  hostNetwork: On\n": true,
		"  hostNetwork: 'true'\n": false, "  hostNetwork:\n": false, "  hostNetwork: {a: b}\n": false, "  hostNetwork: no\n": false,
		"---\nspec: {hostNetwork: true}\n": false,
	} {
		p, err := manifests.Parse([]byte(pod("a:1") + written))
		require.NoError(t, err, written)
		assert.Equal(t, want, p.HostNetwork, written)
	}
}

func TestParseGracePeriod(t *testing.T) {
	t.Parallel()
	for written, want := range map[string]time.Duration{
		"": 30 * second, "5": 5 * second, "0": 0, "-1": 30 * second, "soon": 30 * second, "'5'": 30 * second, "~": 30 * second,
		"1.5": 30 * second, "[1]": 30 * second, "9223372036854775807": (1<<31 - 1) * second,
	} {
		p, err := manifests.Parse([]byte(pod("a:1") + "  terminationGracePeriodSeconds: " + written + "\n"))
		require.NoError(t, err, written)
		assert.Equal(t, want, p.Grace, written)
		p, err = manifests.Parse([]byte(pod("a:1") + "    livenessProbe: {tcpSocket: {port: 1}}\n  terminationGracePeriodSeconds: " + written + "\n"))
		require.NoError(t, err)
		assert.Equal(t, want, p.Probes[0].Grace, written)
	}
}

// The templates of CaaSP have a liveness probe at most.
func TestParseProbesOfTemplates(t *testing.T) {
	t.Parallel()
	for file, want := range map[string]string{"etcd.yaml": "liveness", "kube-apiserver.yaml": "liveness", "public.yaml": ""} {
		data, err := os.ReadFile(filepath.Join("testdata/templates", file))
		require.NoError(t, err)
		p, err := manifests.Parse(data)
		require.NoError(t, err)
		types := ""
		for _, probe := range p.Probes {
			types += probe.Type
		}
		assert.Equal(t, want, types, file)
		assert.True(t, p.HostNetwork, file)
	}
}

func TestPatience(t *testing.T) {
	t.Parallel()
	kubeadm := manifests.Probe{Delay: 10 * time.Second, Period: 10 * time.Second, Timeout: 15 * time.Second, Failures: 24}
	assert.Equal(t, 265*time.Second, kubeadm.Patience())
	endless := manifests.Probe{Period: math.MaxInt32 * time.Second, Failures: math.MaxInt32}
	assert.Equal(t, 365*24*time.Hour, endless.Patience())
}
