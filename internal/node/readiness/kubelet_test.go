// SPDX-License-Identifier: Apache-2.0

package readiness_test

import (
	"cmp"
	"context"
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
	"go.uber.org/goleak"

	"github.com/kubic-project/image-update-agent/agent/apply"
	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
	"github.com/kubic-project/image-update-agent/internal/node/readiness"
	"github.com/kubic-project/image-update-agent/manifests"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve returns a server for one test.
func serve(t *testing.T, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s
}

// checker allows kubelet more time for its answer than a loaded machine needs.
func checker(t *testing.T, o readiness.Options) *readiness.Checker {
	t.Helper()
	o.Timeout = cmp.Or(o.Timeout, time.Minute)
	if o.Addresses == nil {
		o.Addresses = addressesOf(1) // of the tests' servers
	}
	c, err := readiness.New(o)
	require.NoError(t, err)
	return c
}

// ask returns a verdict without an error.
func ask(t *testing.T, c *readiness.Checker, pod apply.PodReadiness) apply.Verdict {
	t.Helper()
	v, err := c.Unready(t.Context(), pod)
	require.NoError(t, err)
	return v
}

// podJSON returns a pod of the list, with fields that the checker ignores.
func podJSON(namespace, name, statuses string) string {
	return fmt.Sprintf(`{"metadata":{"name":%q,"namespace":%q,"uid":"1","annotations":{"kubernetes.io/config.source":"file"}},
"spec":{"containers":[{"name":"velum","image":"velum:1"}]},"status":{"phase":"Running","conditions":[{"type":"Ready"}],"containerStatuses":%s}}`,
		name, namespace, statuses)
}

func listJSON(pods ...string) string {
	return `{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[` + strings.Join(pods, ",") + `]}`
}

const (
	velumReady   = `{"name":"velum","state":{"running":{}},"ready":true,"restartCount":1,"imageID":"velum@sha256:00","containerID":"containerd://aaa"}`
	velumUnready = `{"name":"velum","ready":false,"containerID":"containerd://aaa"}`
	velumOld     = `{"name":"velum","ready":true,"containerID":"containerd://old"}`
	velumWaits   = `{"name":"velum","ready":false,"containerID":""}`
	sideReady    = `{"name":"side","ready":true,"containerID":"containerd://bbb"}`
)

const (
	notSeen = "velum is not ready yet: kubelet does not list it"
	says    = "velum is not ready according to kubelet"
)

// kubeletsWords are lists, and their verdict for velum (aaa) and side (bbb).
var kubeletsWords = map[string]struct{ list, want string }{
	"both ready":                {listJSON(podJSON("kube-system", "velum-node1", "["+velumReady+","+sideReady+"]")), ""},
	"order of the list":         {listJSON(podJSON("a", "b", "null"), podJSON("kube-system", "velum-node1", "["+sideReady+","+velumReady+"]")), ""},
	"unready":                   {listJSON(podJSON("kube-system", "velum-node1", "["+velumUnready+","+sideReady+"]")), says},
	"the container before":      {listJSON(podJSON("kube-system", "velum-node1", "["+velumOld+","+sideReady+"]")), notSeen},
	"waits":                     {listJSON(podJSON("kube-system", "velum-node1", "["+velumWaits+","+sideReady+"]")), notSeen},
	"without status":            {listJSON(podJSON("kube-system", "velum-node1", "null")), notSeen},
	"one is missing":            {listJSON(podJSON("kube-system", "velum-node1", "["+velumReady+"]")), "side is not ready yet: kubelet does not list it"},
	"of another namespace":      {listJSON(podJSON("default", "velum-node1", "["+velumReady+","+sideReady+"]")), notSeen},
	"of another name":           {listJSON(podJSON("kube-system", "velum", "["+velumReady+","+sideReady+"]")), notSeen},
	"no pods":                   {`{"kind":"PodList","apiVersion":"v1","metadata":{},"items":null}`, notSeen},
	"two of the name":           {listJSON(podJSON("kube-system", "velum-node1", "["+velumOld+"]"), podJSON("kube-system", "velum-node1", "["+velumReady+","+sideReady+"]")), ""},
	"two of the name, old last": {listJSON(podJSON("kube-system", "velum-node1", "["+velumReady+","+sideReady+"]"), podJSON("kube-system", "velum-node1", "["+velumOld+"]")), ""},
	"sidecar":                   {listJSON(`{"metadata":{"name":"velum-node1","namespace":"kube-system"},"status":{"initContainerStatuses":[` + sideReady + `],"containerStatuses":[` + velumReady + `]}}`), ""},
}

// velumAndSide has a probe that the agent cannot run without a runtime.
func velumAndSide() apply.PodReadiness {
	return apply.PodReadiness{Namespace: "kube-system", Pod: "velum-node1", Containers: []apply.ContainerReadiness{
		{Name: "velum", ID: "aaa", Probes: []manifests.Probe{{Type: manifests.ProbeReadiness, Kind: manifests.ProbeExec}}},
		{Name: "side", ID: "bbb"},
	}}
}

func TestReadinessFromKubelet(t *testing.T) {
	t.Parallel()
	for name, tc := range kubeletsWords {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, func(w http.ResponseWriter, r *http.Request) {
				assert.Equal(t, "GET /pods", r.Method+" "+r.URL.Path)
				assert.Equal(t, "image-update-agent", r.UserAgent())
				assert.True(t, r.Close, "no connection is kept")
				_, err := io.WriteString(w, tc.list)
				assert.NoError(t, err)
			})
			v := ask(t, checker(t, readiness.Options{Pods: s.URL + "/pods"}), velumAndSide())
			assert.Equal(t, apply.Verdict{Unready: tc.want}, v)
		})
	}
}

func TestKubeletsOwnPort(t *testing.T) {
	t.Parallel()
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, err := io.WriteString(w, kubeletsWords["unready"].list)
		assert.NoError(t, err)
	}))
	t.Cleanup(s.Close)
	assert.Equal(t, says, ask(t, checker(t, readiness.Options{Pods: s.URL + "/pods"}), velumAndSide()).Unready, "its own certificate")
}

// noLists are invalid answers, with their errors.
var noLists = map[string]struct {
	answer http.HandlerFunc
	want   string
}{
	"401":         {status(http.StatusUnauthorized), "401 Unauthorized"},
	"403":         {status(http.StatusForbidden), "403 Forbidden"},
	"404":         {status(http.StatusNotFound), "404 Not Found"},
	"500":         {status(http.StatusInternalServerError), "500 Internal Server Error"},
	"599":         {status(599), "599"},
	"204":         {status(http.StatusNoContent), "204 No Content"},
	"redirect":    {func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/elsewhere", http.StatusFound) }, "302 Found"},
	"empty":       {body(""), "EOF"},
	"text":        {body("hello\n"), "invalid character 'h' looking for beginning of value"},
	"cut":         {body(`{"kind":"PodList","items":[`), "unexpected EOF"},
	"other list":  {body(`{"kind":"NodeList","items":[]}`), "no list of pods"},
	"other shape": {body(`{"kind":"PodList","items":{}}`), "json: cannot unmarshal"},
	"too large":   {body(`{"kind":"PodList","x":"` + strings.Repeat("x", 8<<20) + `"}`), "larger than the limit of 8388608 bytes"},
	"hangs":       {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, "no answer within 100ms"},
	"hangs later": {func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, `{"kind":`)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}, "no answer within 100ms"},
}

func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

func body(s string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, s) }
}

// The probes are run instead, and those that only kubelet can run are named.
func TestKubeletDoesNotAnswer(t *testing.T) {
	t.Parallel()
	for name, tc := range noLists {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, tc.answer)
			o := readiness.Options{Pods: s.URL + "/pods"}
			if strings.HasPrefix(name, "hangs") {
				o.Timeout = 100 * time.Millisecond
			}
			served := serve(t, status(http.StatusServiceUnavailable))
			pod := velumAndSide()
			pod.Containers = append(pod.Containers, containerOf("web", probeOf(t, served)))
			v := ask(t, checker(t, o), pod)
			assert.Equal(t, "web is not ready: GET "+served.URL+"/: 503 Service Unavailable", v.Unready)
			require.Len(t, v.Unchecked, 1)
			assert.True(t, strings.HasPrefix(v.Unchecked[0], "velum: exec probe, which only kubelet can run, and "+s.URL+"/pods: "+tc.want), v.Unchecked[0])
		})
	}
}

func TestKubeletIsNotThere(t *testing.T) {
	t.Parallel()
	url := "http://" + deadAddress(t).String()
	v := ask(t, checker(t, readiness.Options{Pods: url + "/pods?token=secret"}), velumAndSide())
	assert.Equal(t, apply.Verdict{Unchecked: []string{
		"velum: exec probe, which only kubelet can run, and " + url + "/pods: connect: connection refused",
	}}, v)
}

// The end of ctx is not a verdict.
func TestKubeletIsAskedWithinTheContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	s := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		cancel(io.ErrClosedPipe)
		<-r.Context().Done()
	})
	v, err := checker(t, readiness.Options{Pods: s.URL}).Unready(ctx, velumAndSide())
	require.ErrorIs(t, err, io.ErrClosedPipe)
	require.EqualError(t, err, "readiness of velum-node1: io: read/write on closed pipe")
	assert.Empty(t, v)
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	for pods, want := range map[string]string{
		"127.0.0.1:10255":         "kubelet's pods: first path segment in URL cannot contain colon",
		"/pods":                   "kubelet's pods: /pods: want a URL such as http://127.0.0.1:10255/pods",
		"unix:///run/kubelet":     "kubelet's pods: unix:///run/kubelet: want a URL such as http://127.0.0.1:10255/pods",
		"http:///pods":            "kubelet's pods: http:///pods: want a URL such as http://127.0.0.1:10255/pods",
		"http://a:secret@b/pods?": "kubelet's pods: http://b/pods: want a URL such as http://127.0.0.1:10255/pods",
	} {
		_, err := readiness.New(readiness.Options{Pods: pods})
		require.EqualError(t, err, want)
	}
}

// The containers that kubelet does not start, with their pods and reasons, shortened; none without kubelet's list.
func TestWaitingContainersOfKubelet(t *testing.T) {
	t.Parallel()
	const waits = `{"name":%q,"state":{"waiting":{"reason":%q,"message":%q}}}`
	long := strings.Repeat("x", 1000)
	pod := podJSON("kube-system", "velum-node1", "["+fmt.Sprintf(waits, "velum", "ImagePullBackOff", "Back-off")+","+sideReady+"]")
	first := `{"metadata":{"name":"b","namespace":"a"},"status":{"initContainerStatuses":[` + fmt.Sprintf(waits, "init", long, long) + `]}}`
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, listJSON(pod, first)) })
	got, err := checker(t, readiness.Options{Pods: s.URL + "/pods"}).Waiting(t.Context())
	require.NoError(t, err)
	assert.Equal(t, []node.Waiting{
		{Namespace: "kube-system", Pod: "velum-node1", Container: "velum", Reason: "ImagePullBackOff", Message: "Back-off"},
		{Namespace: "a", Pod: "b", Container: "init", Reason: outside.Text(long), Message: outside.Text(long)},
	}, got)
	got, err = checker(t, readiness.Options{}).Waiting(t.Context())
	require.NoError(t, err)
	assert.Empty(t, got)
	_, err = checker(t, readiness.Options{Pods: "http://" + deadAddress(t).String() + "/pods?token=secret"}).Waiting(t.Context())
	require.ErrorContains(t, err, "/pods: connect: connection refused")
	assert.NotContains(t, err.Error(), "secret")
}

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
