// SPDX-License-Identifier: Apache-2.0

package readiness_test

import (
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/internal/node/readiness"
	"github.com/kubic-project/image-update-agent/manifests"
)

// serveAPI returns kubelet's kubeconfig for an API server with one answer.
func serveAPI(t *testing.T, answer http.HandlerFunc) (kubeconfig string) {
	t.Helper()
	s := httptest.NewTLSServer(answer)
	t.Cleanup(s.Close)
	ca := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
	kubeconfig = filepath.Join(t.TempDir(), "kubelet.conf")
	text := fmt.Sprintf("apiVersion: v1\nkind: Config\ncurrent-context: c\n"+
		"clusters: [{name: k, cluster: {server: %q, certificate-authority: ca.pem}}]\n"+
		"users: [{name: u, user: {token: secret}}]\ncontexts: [{name: c, context: {cluster: k, user: u}}]\n", s.URL)
	require.NoError(t, os.WriteFile(kubeconfig, []byte(text), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(filepath.Dir(kubeconfig), "ca.pem"), []byte(ca), 0o600))
	return kubeconfig
}

// mirrorJSON returns the mirror pod of velum.
func mirrorJSON(statuses string) string {
	return `{"kind":"Pod","metadata":{"namespace":"kube-system","name":"velum-node1","annotations":{"kubernetes.io/config.hash":"1","kubernetes.io/config.mirror":"1"}},
"status":{"containerStatuses":[` + statuses + `]}}`
}

// statusJSON returns the status of a container.
func statusJSON(id, started string, ready bool) string {
	return fmt.Sprintf(`{"name":"velum","containerID":"containerd://%s","started":%s,"ready":%t,"restartCount":3,"lastState":{"terminated":{"exitCode":137,"reason":"Error"}}}`,
		id, started, ready)
}

const restarted = ", which has restarted it 3 times; it last ended with exit code 137: Error"

// What kubelet has told the API server about a container counts; else its probe, which answers 503, or 200 (good).
func TestMirrorPod(t *testing.T) {
	t.Parallel()
	mine := "id of velum"
	for name, c := range map[string]struct {
		answer     http.HandlerFunc
		good, want string
		kind       string // of the probe: readiness
	}{
		"ready":                 {answer: body(mirrorJSON(statusJSON(mine, "true", true)))},
		"not ready":             {answer: body(mirrorJSON(statusJSON(mine, "true", false))), good: "yes", want: "velum is not ready according to kubelet" + restarted},
		"not started":           {answer: body(mirrorJSON(statusJSON(mine, "false", false))), good: "yes", kind: "startup", want: "velum has not started according to kubelet" + restarted},
		"without started":       {answer: body(mirrorJSON(statusJSON(mine, "null", true))), kind: "startup"},
		"sidecar":               {answer: body(strings.Replace(mirrorJSON(statusJSON(mine, "false", false)), "containerStatuses", "initContainerStatuses", 1)), good: "yes", want: "velum has not started according to kubelet" + restarted},
		"of the one before":     {answer: body(mirrorJSON(statusJSON("old", "true", true))), want: "503"},
		"the one before is bad": {answer: body(mirrorJSON(statusJSON("old", "false", false))), good: "yes"},
		"no status":             {answer: body(mirrorJSON("")), want: "503"},
		"no mirror pod":         {answer: body(strings.Replace(mirrorJSON(statusJSON(mine, "true", true)), ".mirror", ".other", 1)), want: "503"},
		"another pod":           {answer: body(strings.Replace(mirrorJSON(statusJSON(mine, "true", true)), "velum-node1", "velum-node2", 1)), want: "503"},
		"404":                   {answer: status(http.StatusNotFound), want: "503"},
		"403":                   {answer: status(http.StatusForbidden), want: "503"},
		"text":                  {answer: body("hello"), want: "503"},
		"too large":             {answer: body(`{"kind":"Pod","x":"` + strings.Repeat("x", 2<<20) + `"}`), want: "503"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := serveAPI(t, func(w http.ResponseWriter, r *http.Request) {
				assert.Equal(t, "GET /api/v1/namespaces/kube-system/pods/velum-node1", r.Method+" "+r.URL.Path)
				assert.Equal(t, "Bearer secret", r.Header.Get("Authorization"))
				c.answer(w, r)
			})
			code := http.StatusServiceUnavailable
			if c.good != "" {
				code = http.StatusOK
			}
			p := probeOf(t, serve(t, status(code)))
			p.Type = c.kind
			pod := podOf()
			pod.Containers = append(pod.Containers, containerOf("velum", p))
			v := ask(t, checker(t, readiness.Options{Kubeconfig: config}), pod)
			if c.want == "" || c.want == "503" {
				assert.Equal(t, c.want != "", strings.Contains(v.Unready, "503 Service Unavailable"), v.Unready)
			} else {
				assert.Equal(t, c.want, v.Unready)
			}
			assert.Empty(t, v.Unchecked)
		})
	}
}

// Why neither kubelet nor the API server says anything is part of what is not checked.
func TestUncheckedSaysWhyKubeletIsSilent(t *testing.T) {
	t.Parallel()
	exec := manifests.Probe{Kind: manifests.ProbeExec}
	config := serveAPI(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		_, _ = io.WriteString(w, `{"kind":"Status","reason":"Forbidden","message":"no"}`)
	})
	v := ask(t, checker(t, readiness.Options{Kubeconfig: config}), podOf(exec))
	require.Len(t, v.Unchecked, 1)
	assert.Contains(t, v.Unchecked[0], "velum: exec probe, which only kubelet can run, and pod kube-system/velum-node1 at 127.0.0.1:")
	assert.Contains(t, v.Unchecked[0], ": 403: no")
	v = ask(t, checker(t, readiness.Options{Kubeconfig: config + ".none"}), podOf(exec))
	assert.Equal(t, []string{"velum: exec probe, which only kubelet can run"}, v.Unchecked, "a kubelet without an API server")
}

// kubelet does not tell about liveness: the probe is run, or the container outlives the time after which kubelet ends
// it.
func TestLivenessBesideKubelet(t *testing.T) {
	t.Parallel()
	s := serve(t, body(listJSON(podJSON("kube-system", "velum-node1", "["+velumReady+"]"))))
	served := serve(t, status(http.StatusServiceUnavailable))
	p := probeOf(t, served)
	p.Type, p.Delay, p.Period, p.Failures, p.Timeout = manifests.ProbeLiveness, time.Hour, time.Hour, 2, time.Minute
	pod := podOf()
	pod.Containers = append(pod.Containers, containerOf("velum", p))
	pod.Containers[0].ID = "aaa"
	c := checker(t, readiness.Options{Pods: s.URL + "/pods"})
	assert.Equal(t, "the liveness probe of velum has not succeeded: its initialDelaySeconds are not over before 1h0m0s", ask(t, c, pod).Failing)
	pod.Containers[0].StartedAt = time.Now().Add(-time.Hour)
	assert.Equal(t, "the liveness probe of velum has not succeeded: GET "+served.URL+"/: 503 Service Unavailable", ask(t, c, pod).Failing)
	pod.Containers[0].Probes[0].Kind = "other"
	assert.Equal(t, `velum must run for 3h1m0s: probe of unknown kind "other"`, ask(t, c, pod).Failing)
	readiness.Started(c, "kube-system/velum-node1/velum", time.Now().Add(-3*time.Hour-time.Minute))
	assert.Empty(t, ask(t, c, pod))
}
