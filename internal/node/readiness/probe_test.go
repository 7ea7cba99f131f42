// SPDX-License-Identifier: Apache-2.0

package readiness_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/kubic-project/image-update-agent/agent/apply"
	"github.com/kubic-project/image-update-agent/internal/node/readiness"
	"github.com/kubic-project/image-update-agent/manifests"
)

// probeOf returns an HTTP probe of a server, with a timeout of a minute.
func probeOf(t *testing.T, s *httptest.Server) manifests.Probe {
	t.Helper()
	u, err := url.Parse(s.URL)
	require.NoError(t, err)
	port, err := strconv.Atoi(u.Port())
	require.NoError(t, err)
	return manifests.Probe{Type: manifests.ProbeReadiness, Kind: manifests.ProbeHTTP, Port: port, Scheme: strings.ToUpper(u.Scheme), Path: "/", Timeout: time.Minute}
}

// containerOf returns a container with probes; by default, they are of its readiness.
func containerOf(name string, probes ...manifests.Probe) apply.ContainerReadiness {
	for n := range probes {
		probes[n].Type = cmp.Or(probes[n].Type, manifests.ProbeReadiness)
	}
	return apply.ContainerReadiness{Name: name, ID: "id of " + name, StartedAt: time.Now(), Probes: probes}
}

func podOf(probes ...manifests.Probe) apply.PodReadiness {
	pod := apply.PodReadiness{Namespace: "kube-system", Pod: "velum-node1"}
	for n, p := range probes {
		c := containerOf("velum", p)
		c.ID += strconv.Itoa(n)
		pod.Containers = append(pod.Containers, c)
	}
	return pod
}

// httpAnswers are servers, and the verdict's text after the URL; empty: ready.
var httpAnswers = map[string]struct {
	answer http.HandlerFunc
	want   string
}{
	"101": {status(http.StatusSwitchingProtocols), "101 Switching Protocols"},
	"200": {status(http.StatusOK), ""},
	"204": {status(http.StatusNoContent), ""},
	"304": {status(http.StatusNotModified), ""},
	"399": {status(399), ""},
	"400": {status(http.StatusBadRequest), "400 Bad Request"},
	"404": {status(http.StatusNotFound), "404 Not Found"},
	"503": {status(http.StatusServiceUnavailable), "503 Service Unavailable"},
	"302 to another host": {func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://elsewhere.invalid/", http.StatusFound)
	}, ""},
	"302 to the login": {func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/" {
			http.Redirect(w, r, "/login", http.StatusFound)
		}
	}, ""},
	"302 to what is broken": {func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/" {
			http.Redirect(w, r, "/login", http.StatusFound)
			return
		}
		w.WriteHeader(http.StatusBadGateway)
	}, "502 Bad Gateway"},
	"302 in a circle": {func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/?secret", http.StatusFound) }, "more than 10 redirects"},
	"endless body": {func(w http.ResponseWriter, _ *http.Request) {
		for { // until the client hangs up
			if _, err := io.WriteString(w, strings.Repeat("x", 1<<15)); err != nil {
				return
			}
		}
	}, ""},
	"cut body": {func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		_, _ = io.WriteString(w, "x")
	}, "unexpected EOF"},
	"large header": {func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X", strings.Repeat("x", 1<<17)) }, "net/http: HTTP/1.x transport connection broken: net/http: server response headers exceeded 65536 bytes; aborted"},
	"no answer":    {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "EOF"},
}

func TestHTTPProbe(t *testing.T) {
	t.Parallel()
	for name, tc := range httpAnswers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, tc.answer)
			if tc.want != "" {
				tc.want = "velum is not ready: GET " + s.URL + "/: " + tc.want
			}
			assert.Equal(t, apply.Verdict{Unready: tc.want}, ask(t, checker(t, readiness.Options{}), podOf(probeOf(t, s))))
		})
	}
}

func TestHTTPProbeOfAServerThatHangs(t *testing.T) {
	t.Parallel()
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/body" {
			_, _ = io.WriteString(w, "x")
			_ = http.NewResponseController(w).Flush()
		}
		<-r.Context().Done()
	})
	for _, path := range []string{"/", "/body"} {
		p := probeOf(t, s)
		p.Timeout, p.Path = 100*time.Millisecond, path
		v := ask(t, checker(t, readiness.Options{}), podOf(p))
		assert.Equal(t, "velum is not ready: GET "+s.URL+path+": no answer within 100ms", v.Unready)
	}
}

// The rest of an answer may be endless.
func TestHTTPProbeReadsTenKilobytes(t *testing.T) {
	t.Parallel()
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, strings.Repeat("x", 10<<10))
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	assert.Equal(t, apply.Verdict{}, ask(t, checker(t, readiness.Options{}), podOf(probeOf(t, s))))
}

// kubelet's default replaces an invalid time.
func TestHTTPProbeWithoutTime(t *testing.T) {
	t.Parallel()
	p := probeOf(t, serve(t, status(http.StatusOK)))
	for _, timeout := range []time.Duration{0, -time.Minute} {
		p.Timeout = timeout
		assert.Empty(t, ask(t, checker(t, readiness.Options{}), podOf(p)))
	}
}

// A server may redirect in a circle until the probe's timeout.
func TestHTTPProbeFollowsTenRedirects(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		http.Redirect(w, r, "/", http.StatusFound)
	})
	v := ask(t, checker(t, readiness.Options{}), podOf(probeOf(t, s)))
	assert.Contains(t, v.Unready, "more than 10 redirects")
	assert.Equal(t, int32(10), asked.Load())
}

// A pod manifest cannot delay the check of other containers for longer.
func TestProbeTimesAreBounded(t *testing.T) {
	t.Parallel()
	for asked, want := range map[time.Duration]time.Duration{
		0: time.Second, 5 * time.Second: 5 * time.Second, 30 * time.Second: 30 * time.Second, time.Hour: 30 * time.Second,
	} {
		synctest.Test(t, func(t *testing.T) {
			c := checker(t, readiness.Options{})
			readiness.Dial(c, func(ctx context.Context, _, _ string) (net.Conn, error) {
				end, ok := ctx.Deadline()
				assert.True(t, ok)
				assert.Equal(t, want, time.Until(end), asked) // the bubble's time
				return nil, io.ErrClosedPipe
			})
			v := ask(t, c, podOf(manifests.Probe{Kind: manifests.ProbeTCP, Host: "127.0.0.1", Port: 1, Timeout: asked}))
			assert.Contains(t, v.Unready, io.ErrClosedPipe.Error(), "dialled")
		})
	}
}

func TestHTTPProbeOverTLS(t *testing.T) {
	t.Parallel()
	for _, http2 := range []bool{false, true} {
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			assert.Equal(t, http2, r.ProtoMajor == 2)
			w.WriteHeader(http.StatusTeapot)
		}))
		s.EnableHTTP2, s.Config.ErrorLog = http2, log.New(io.Discard, "", 0)
		s.StartTLS()
		t.Cleanup(s.Close)
		v := ask(t, checker(t, readiness.Options{}), podOf(probeOf(t, s)))
		assert.Equal(t, "velum is not ready: GET "+s.URL+"/: 418 I'm a teapot", v.Unready, "the answer, and not the certificate, counts")

		p := probeOf(t, s)
		p.Scheme = "HTTP"
		v = ask(t, checker(t, readiness.Options{}), podOf(p))
		assert.Equal(t, "velum is not ready: GET "+strings.Replace(s.URL, "https", "http", 1)+"/: 400 Bad Request", v.Unready)
	}
	plain := serve(t, status(http.StatusOK))
	p := probeOf(t, plain)
	p.Scheme = "HTTPS"
	v := ask(t, checker(t, readiness.Options{}), podOf(p))
	assert.Contains(t, v.Unready, ": http: server gave HTTP response to HTTPS client")
}

// requests are probes, and the expected requests.
var requests = map[string]struct {
	path    string
	headers []manifests.Header
	uri     string
	want    http.Header // without Connection
	shown   string
}{
	"plain":         {"/", nil, "/", http.Header{"User-Agent": {"agent/1"}, "Accept": {"*/*"}}, "/"},
	"query":         {"/a%20b?token=secret", nil, "/a%20b?token=secret", http.Header{"User-Agent": {"agent/1"}, "Accept": {"*/*"}}, "/a%20b"},
	"escaped":       {"/a%2Fb", nil, "/a%2Fb", http.Header{"User-Agent": {"agent/1"}, "Accept": {"*/*"}}, "/a%2Fb"},
	"relative":      {"healthz", nil, "/healthz", http.Header{"User-Agent": {"agent/1"}, "Accept": {"*/*"}}, "/healthz"},
	"no URL":        {"/%zz", nil, "/%25zz", http.Header{"User-Agent": {"agent/1"}, "Accept": {"*/*"}}, "/%25zz"},
	"another's URL": {"http://u:secret@elsewhere.invalid/x", nil, "/x", http.Header{"User-Agent": {"agent/1"}, "Accept": {"*/*"}, "Authorization": {"Basic dTpzZWNyZXQ="}}, "/x"},
	"headers": {
		"/",
		[]manifests.Header{{Name: "x-a", Value: "1"}, {Name: "X-A", Value: "2"}, {Name: "user-agent", Value: "own"}, {Name: "Accept", Value: "text/plain"}},
		"/",
		http.Header{"X-A": {"1", "2"}, "User-Agent": {"own"}, "Accept": {"text/plain"}},
		"/",
	},
	"long": {"/" + strings.Repeat("x", 300), nil, "/" + strings.Repeat("x", 300), http.Header{"User-Agent": {"agent/1"}, "Accept": {"*/*"}}, "…"},
}

func TestHTTPProbeSends(t *testing.T) {
	t.Parallel()
	for name, tc := range requests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, func(w http.ResponseWriter, r *http.Request) {
				assert.Equal(t, http.MethodGet, r.Method)
				assert.Equal(t, tc.uri, r.RequestURI)
				assert.True(t, r.Close, "no connection is kept")
				r.Header.Del("Connection")
				assert.Equal(t, tc.want, r.Header)
				assert.True(t, strings.HasPrefix(r.Host, "127.0.0.1:"), r.Host)
				w.WriteHeader(http.StatusInternalServerError)
			})
			p := probeOf(t, s)
			p.Path, p.Headers = tc.path, tc.headers
			v := ask(t, checker(t, readiness.Options{UserAgent: "agent/1"}), podOf(p))
			assert.True(t, strings.HasPrefix(v.Unready, "velum is not ready: GET http://127.0.0.1:"), v.Unready)
			assert.True(t, strings.HasSuffix(v.Unready, tc.shown+": 500 Internal Server Error"), v.Unready)
			assert.NotContains(t, v.Unready, "secret")
		})
	}
}

func TestHTTPProbeSendsTheHost(t *testing.T) {
	t.Parallel()
	s := serve(t, func(_ http.ResponseWriter, r *http.Request) { assert.Equal(t, "velum.example", r.Host) })
	p := probeOf(t, s)
	p.Headers = []manifests.Header{{Name: "Host", Value: "velum.example"}}
	assert.Empty(t, ask(t, checker(t, readiness.Options{}), podOf(p)))
}

func TestTCPProbe(t *testing.T) {
	t.Parallel()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := manifests.Probe{Kind: manifests.ProbeTCP, Port: l.Addr().(*net.TCPAddr).Port, Timeout: time.Minute}
	pod := podOf(p)
	pod.Address = "127.0.0.1"
	c := checker(t, readiness.Options{})
	assert.Empty(t, ask(t, c, pod))
	conn, err := l.Accept()
	require.NoError(t, err)
	n, err := io.Copy(io.Discard, conn)
	require.NoError(t, err)
	assert.Zero(t, n, "connected, sent nothing, and hung up")
	require.NoError(t, conn.Close())
	require.NoError(t, l.Close())
}

// deadAddress returns an address without a listener: the local end of a connection, which is not reused meanwhile.
func deadAddress(t *testing.T) *net.TCPAddr {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", l.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, conn.Close()); assert.NoError(t, l.Close()) })
	return conn.LocalAddr().(*net.TCPAddr)
}

// A host name in a pod manifest may be unknown.
func TestTCPProbeOfAnUnknownHost(t *testing.T) {
	t.Parallel()
	p := manifests.Probe{Kind: manifests.ProbeTCP, Host: "a\n\x1bb", Port: 1, Timeout: time.Minute}
	v := ask(t, checker(t, readiness.Options{}), podOf(p))
	assert.Equal(t, "velum is not ready: TCP a  b:1: lookup a  b: no such host", v.Unready)
}

// unrunnable are probes that the agent cannot run; it sends nothing for them.
var unrunnable = map[string]struct {
	probe manifests.Probe
	want  string
}{
	"exec":         {manifests.Probe{Kind: "exec"}, "velum: exec probe, which only kubelet can run"},
	"grpc":         {manifests.Probe{Kind: "grpc"}, "velum: grpc probe without a usable port"},
	"unknown":      {manifests.Probe{Kind: "a\nb"}, `velum: probe of unknown kind "a\nb"`},
	"no port":      {manifests.Probe{Kind: "httpGet", Scheme: "HTTP"}, "velum: httpGet probe without a usable port"},
	"no TCP port":  {manifests.Probe{Kind: "tcpSocket"}, "velum: tcpSocket probe without a usable port"},
	"high port":    {manifests.Probe{Kind: "tcpSocket", Port: 65536}, "velum: tcpSocket probe without a usable port"},
	"other scheme": {manifests.Probe{Kind: "httpGet", Scheme: "gopher", Port: 1}, `velum: httpGet probe with the unknown scheme "gopher"`},
}

func TestProbesThatCannotRunAreUnchecked(t *testing.T) {
	t.Parallel()
	s := serve(t, status(http.StatusServiceUnavailable))
	for name, tc := range unrunnable {
		pod := podOf(tc.probe, probeOf(t, s))
		pod.Containers = append(pod.Containers, apply.ContainerReadiness{Name: "without probe"})
		v := ask(t, checker(t, readiness.Options{}), pod)
		assert.Equal(t, []string{tc.want}, v.Unchecked, name)
		assert.NotEmpty(t, v.Unready, name)
	}
}

// The first failing probe is named; later ones do not run.
func TestProbesRunInOrder(t *testing.T) {
	t.Parallel()
	ready, unready := serve(t, status(http.StatusOK)), serve(t, status(http.StatusGone))
	never := serve(t, func(http.ResponseWriter, *http.Request) { assert.Fail(t, "asked in vain") })
	v := ask(t, checker(t, readiness.Options{}), podOf(probeOf(t, ready), probeOf(t, unready), probeOf(t, never)))
	assert.Equal(t, "velum is not ready: GET "+unready.URL+"/: 410 Gone", v.Unready)
	assert.Empty(t, ask(t, checker(t, readiness.Options{}), podOf()), "no containers")
}

// addressesOf returns loopback addresses, all of which Linux has.
func addressesOf(last ...byte) func(context.Context) []netip.Addr {
	return func(context.Context) []netip.Addr {
		var found []netip.Addr
		for _, b := range last {
			found = append(found, netip.AddrFrom4([4]byte{127, 0, 0, b}))
		}
		return found
	}
}

func TestProbeFindsTheAddress(t *testing.T) {
	t.Parallel()
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.Host, "127.0.0.1:") {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	p := probeOf(t, s)
	port := ":" + strconv.Itoa(p.Port) + "/: "
	for name, tc := range map[string]struct {
		probe, pod string
		host       []byte
		want       string
	}{
		"the probe's":             {"127.0.0.1", "127.0.0.7", []byte{8}, "127.0.0.1" + port + "503 Service Unavailable"},
		"the pod's":               {"", "127.0.0.7", []byte{1}, "127.0.0.7" + port + "connect: connection refused"},
		"the host's":              {"", "", []byte{1, 7}, "127.0.0.1" + port + "503 Service Unavailable"},
		"the host's that accepts": {"", "", []byte{7, 8, 1, 9}, "127.0.0.1" + port + "503 Service Unavailable"},
		"none that accepts":       {"", "", []byte{8, 7}, "127.0.0.8" + port + "connect: connection refused"},
	} {
		p, pod := p, podOf(p)
		p.Host, pod.Address = tc.probe, tc.pod
		pod.Containers[0].Probes = []manifests.Probe{p}
		v := ask(t, checker(t, readiness.Options{Addresses: addressesOf(tc.host...)}), pod)
		assert.Equal(t, "velum is not ready: GET http://"+tc.want, v.Unready, name)
	}
}

// The first address that accepts belongs to the container, even if that is not ready.
func TestProbeStopsAtTheFirstConnection(t *testing.T) {
	t.Parallel()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		assert.True(t, strings.HasPrefix(r.Host, "127.0.0.1:"), r.Host)
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	require.NoError(t, s.Listener.Close())
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp4", "0.0.0.0:0")
	require.NoError(t, err)
	s.Listener = l
	s.Start()
	t.Cleanup(s.Close)
	v := ask(t, checker(t, readiness.Options{Addresses: addressesOf(1, 7)}), podOf(probeOf(t, s)))
	assert.Contains(t, v.Unready, "GET http://127.0.0.1:")
}

// The test can listen on every address, so each belongs to the host.
func TestHostAddresses(t *testing.T) {
	t.Parallel()
	found := readiness.HostAddresses(t.Context())
	for _, a := range append(found, readiness.Sources(t.Context())...) {
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", netip.AddrPortFrom(a, 0).String())
		require.NoError(t, err)
		require.NoError(t, l.Close())
		assert.False(t, a.IsLoopback(), a)
	}
}

// The environment may name a proxy; 0.0.0.0 is this host, but is not exempt from proxies.
func TestProbesUseNoProxy(t *testing.T) {
	proxy := serve(t, func(http.ResponseWriter, *http.Request) { assert.Fail(t, "asked a proxy") })
	t.Setenv("HTTP_PROXY", proxy.URL)
	t.Setenv("http_proxy", proxy.URL)
	p := probeOf(t, serve(t, status(http.StatusOK)))
	p.Host = "0.0.0.0"
	assert.Empty(t, ask(t, checker(t, readiness.Options{}), podOf(p)))
}

func TestProbesEndWithTheContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	s := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		cancel()
		<-r.Context().Done()
	})
	v, err := checker(t, readiness.Options{}).Unready(ctx, podOf(probeOf(t, s)))
	require.ErrorIs(t, err, context.Canceled)
	assert.Empty(t, v)
}

// serveGRPC returns the port of a server with the health protocol, unless register is nil.
func serveGRPC(t *testing.T, register func(*grpc.Server)) int {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := grpc.NewServer()
	if register != nil {
		register(s)
	}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(s.Stop)
	return l.Addr().(*net.TCPAddr).Port
}

// handlers are probes of each kind that succeed or fail, and why they fail.
func handlers(t *testing.T) map[string]struct {
	probe manifests.Probe
	fails string
} {
	t.Helper()
	h := health.NewServer()
	h.SetServingStatus("bad", healthpb.HealthCheckResponse_NOT_SERVING)
	port := serveGRPC(t, func(s *grpc.Server) { healthpb.RegisterHealthServer(s, h) })
	grpcOf := func(port int, service string) manifests.Probe {
		return manifests.Probe{Kind: manifests.ProbeGRPC, Port: port, Service: service, Timeout: time.Minute}
	}
	execOf := func(word string) manifests.Probe {
		return manifests.Probe{Kind: manifests.ProbeExec, Command: []string{word}, Timeout: 20 * time.Second}
	}
	dead := deadAddress(t)
	good, bad := serve(t, status(http.StatusOK)), serve(t, status(http.StatusServiceUnavailable))
	return map[string]struct {
		probe manifests.Probe
		fails string
	}{
		"http":                 {probeOf(t, good), ""},
		"http 503":             {probeOf(t, bad), "GET " + bad.URL + "/: 503 Service Unavailable"},
		"tcp":                  {manifests.Probe{Kind: manifests.ProbeTCP, Port: port, Timeout: time.Minute}, ""},
		"tcp refused":          {manifests.Probe{Kind: manifests.ProbeTCP, Port: dead.Port, Timeout: time.Minute}, "TCP " + dead.String() + ": connect: connection refused"},
		"grpc":                 {grpcOf(port, ""), ""},
		"grpc, not serving":    {grpcOf(port, "bad"), fmt.Sprintf("gRPC 127.0.0.1:%d: NOT_SERVING", port)},
		"grpc, unknown":        {grpcOf(port, "other"), fmt.Sprintf("gRPC 127.0.0.1:%d: unknown service", port)},
		"grpc, no health":      {grpcOf(serveGRPC(t, nil), ""), "unknown service grpc.health.v1.Health"},
		"grpc, another server": {grpcOf(probeOf(t, good).Port, ""), "gRPC 127.0.0.1:"},
		"grpc refused":         {grpcOf(dead.Port, ""), "gRPC " + dead.String() + ": connect: connection refused"},
		"exec":                 {execOf("0"), ""},
		"exec, code 1":         {execOf("1"), "exec: exit code 1"},
		"exec, too slow":       {execOf("slow"), "exec: no end within 20s"},
	}
}

// execute answers an exec probe by its command.
func execute(_ context.Context, container string, command []string, within time.Duration) (int32, error) {
	switch {
	case !strings.HasPrefix(container, "id of velum"):
		return 0, errors.New("another container")
	case slices.Equal(command, []string{"0"}):
		return 0, nil
	case slices.Equal(command, []string{"1"}):
		return 1, nil
	case slices.Equal(command, []string{"slow"}) && within < 40*time.Second:
		return 0, fmt.Errorf("cri: %w", context.DeadlineExceeded)
	}
	return 0, errors.New("cri: no such container")
}

// Each type of probe with each handler.
func TestEachTypeAndHandler(t *testing.T) {
	t.Parallel()
	for name, h := range handlers(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for kind, begins := range map[string]string{
				manifests.ProbeStartup:   "velum has not started: ",
				manifests.ProbeReadiness: "velum is not ready: ",
				manifests.ProbeLiveness:  "the liveness probe of velum has not succeeded: ",
			} {
				p := h.probe
				p.Type = kind
				pod := podOf(p)
				pod.Address = "127.0.0.1"
				v := ask(t, checker(t, readiness.Options{Exec: execute}), pod)
				is, other := v.Unready, v.Failing
				if kind == manifests.ProbeLiveness {
					is, other = other, is
				}
				assert.Empty(t, v.Unchecked, kind)
				assert.Empty(t, other, kind)
				if h.fails == "" {
					assert.Empty(t, is, kind)
					continue
				}
				assert.True(t, strings.HasPrefix(is, begins), "%s: %s", kind, is)
				assert.Contains(t, is, h.fails, kind)
			}
		})
	}
}

func TestProbeWithoutAResultIsUnchecked(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{manifests.ProbeStartup, manifests.ProbeReadiness, manifests.ProbeLiveness} {
		v := ask(t, checker(t, readiness.Options{Exec: execute}), podOf(manifests.Probe{Type: kind, Kind: manifests.ProbeExec}))
		assert.Equal(t, apply.Verdict{Unchecked: []string{"velum: exec probe: cri: no such container"}}, v, kind)
		slow := manifests.Probe{Type: kind, Kind: manifests.ProbeExec, Command: []string{"slow"}, Timeout: 40 * time.Second}
		v = ask(t, checker(t, readiness.Options{Exec: execute}), podOf(slow))
		assert.Equal(t, apply.Verdict{Unchecked: []string{"velum: exec: no end within 30s, and the probe may take 40s"}}, v, kind)
		tcp := manifests.Probe{Type: kind, Kind: manifests.ProbeTCP, Port: 1}
		v = ask(t, checker(t, readiness.Options{Addresses: addressesOf()}), podOf(tcp))
		assert.Equal(t, apply.Verdict{Unchecked: []string{"velum: the node has no address"}}, v, kind)
	}
}

// What is concluded from results at some seconds after the start of the container, as kubelet does
// (k8s.io/kubernetes/pkg/kubelet/prober/worker.go).
func TestProbesAreCounted(t *testing.T) {
	t.Parallel()
	const (
		unready = "velum is not ready: exec: exit code 1"
		failing = "velum may not be ready: exec: exit code 1"
		ill     = "the liveness probe of velum has not succeeded: exec: exit code 1"
	)
	probe := func(kind string, change func(*manifests.Probe)) manifests.Probe {
		p := manifests.Probe{
			Type: kind, Kind: manifests.ProbeExec, Command: []string{kind}, Timeout: time.Second, Period: 10 * time.Second,
			Successes: 1, Failures: 3,
		}
		if change != nil {
			change(&p)
		}
		return p
	}
	for name, c := range map[string]struct {
		probes []manifests.Probe
		fails  func(kind string, second int) bool
		want   map[int]string // by the second: Unready, else Failing
		runs   string         // what ran in the first minute and must not, by type
	}{
		"it starts late": {
			probes: []manifests.Probe{probe("startup", nil), probe("readiness", nil), probe("liveness", nil)},
			fails:  func(kind string, s int) bool { return kind == "startup" && s < 5 },
			want:   map[int]string{1: "velum has not started: exec: exit code 1", 7: "", 60: ""},
		},
		"it has started once": {
			probes: []manifests.Probe{probe("startup", nil), probe("readiness", nil)},
			fails:  func(kind string, s int) bool { return kind == "startup" && s > 0 },
			want:   map[int]string{0: "", 60: ""},
		},
		"it never starts": {
			probes: []manifests.Probe{probe("startup", nil), probe("liveness", nil)},
			fails:  func(kind string, _ int) bool { return kind == "startup" },
			want:   map[int]string{0: "velum has not started: exec: exit code 1", 300: "velum has not started: exec: exit code 1"}, runs: "liveness",
		},
		"it is never alive":       {probes: []manifests.Probe{probe("liveness", nil)}, fails: func(string, int) bool { return true }, want: map[int]string{0: ill, 300: ill}},
		"it is alive, then never": {probes: []manifests.Probe{probe("liveness", func(p *manifests.Probe) { p.Failures = 8 })}, fails: func(_ string, s int) bool { return s > 5 }, want: map[int]string{0: "", 5: "", 11: ill, 300: ill}},
		"it is alive again":       {probes: []manifests.Probe{probe("liveness", nil)}, fails: func(_ string, s int) bool { return s > 5 && s < 15 }, want: map[int]string{11: ill, 21: ""}},
		"one failure":             {probes: []manifests.Probe{probe("readiness", nil)}, fails: func(_ string, s int) bool { return s > 5 && s < 15 }, want: map[int]string{5: "", 11: failing, 21: ""}},
		"three failures":          {probes: []manifests.Probe{probe("readiness", nil)}, fails: func(_ string, s int) bool { return s > 5 && s < 35 }, want: map[int]string{11: failing, 21: failing, 31: unready, 41: ""}},
		"one failure is enough":   {probes: []manifests.Probe{probe("readiness", func(p *manifests.Probe) { p.Failures = 1 })}, fails: func(_ string, s int) bool { return s > 5 && s < 15 }, want: map[int]string{11: unready, 21: ""}},
		"two successes":           {probes: []manifests.Probe{probe("readiness", func(p *manifests.Probe) { p.Successes = 2 })}, fails: func(string, int) bool { return false }, want: map[int]string{0: "velum is not ready: its probe has succeeded 1 times of 2", 9: "velum is not ready: its probe has succeeded 1 times of 2", 11: ""}},
		"a delay": {
			probes: []manifests.Probe{probe("readiness", func(p *manifests.Probe) { p.Delay = 5 * time.Second })},
			fails:  func(_ string, s int) bool { return s < 5 }, // it must not run then
			want:   map[int]string{4: "velum is not ready: its initialDelaySeconds are not over before 5s", 6: ""},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				ch := checker(t, readiness.Options{Exec: func(_ context.Context, _ string, command []string, _ time.Duration) (int32, error) {
					assert.NotEqual(t, c.runs, command[0])
					if c.fails(command[0], int(time.Since(began).Seconds())) {
						return 1, nil
					}
					return 0, nil
				}})
				pod := podOf()
				pod.Containers = []apply.ContainerReadiness{containerOf("velum", c.probes...)}
				for second := range 301 {
					for range 2 {
						v := ask(t, ch, pod)
						if want, is := c.want[second]; is {
							assert.Equal(t, want, v.Unready+v.Failing, second)
						}
						time.Sleep(500 * time.Millisecond) //nolint:forbidigo // the bubble's time
					}
				}
			})
		})
	}
}

// A new container begins anew.
func TestARestartForgetsWhatWasKnown(t *testing.T) {
	t.Parallel()
	code := int32(0)
	c := checker(t, readiness.Options{Exec: func(context.Context, string, []string, time.Duration) (int32, error) { return code, nil }})
	pod := podOf(manifests.Probe{Type: manifests.ProbeStartup, Kind: manifests.ProbeExec})
	assert.Empty(t, ask(t, c, pod))
	code = 1
	assert.Empty(t, ask(t, c, pod), "it has started")
	pod.Containers[0].ID = "id of velum, the next one"
	assert.Equal(t, "velum has not started: exec: exit code 1", ask(t, c, pod).Unready)
}
