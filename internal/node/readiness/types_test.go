// SPDX-License-Identifier: Apache-2.0

package readiness_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
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
