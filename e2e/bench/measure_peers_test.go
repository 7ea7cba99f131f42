// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
)

// meter forwards connections to a registry and counts them, and their bytes.
type meter struct {
	host        string
	connections atomic.Int64
	bytes       atomic.Int64
}

func startMeter(tb testing.TB, n *node.Node) *meter {
	tb.Helper()
	listener, err := new(net.ListenConfig).Listen(tb.Context(), "tcp", "127.0.0.1:0")
	require.NoError(tb, err)
	tb.Cleanup(func() { _ = listener.Close() })
	m := &meter{host: listener.Addr().String()}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			m.connections.Add(1)
			go m.pass(tb.Context(), conn, n.Registry.Host)
		}
	}()
	n.WriteFile("etc/containerd/certs.d/"+m.host+"/hosts.toml",
		fmt.Sprintf("server = %[1]q\n[host.%[1]q]\n  capabilities = [\"pull\", \"resolve\"]\n", "http://"+m.host))
	return m
}

func (m *meter) pass(ctx context.Context, client net.Conn, to string) {
	server, err := new(net.Dialer).DialContext(ctx, "tcp", to)
	if err != nil {
		_ = client.Close()
		return
	}
	copied := func(dst, src net.Conn) {
		_, _ = io.Copy(counting{dst, &m.bytes}, src)
		_ = dst.Close()
	}
	go copied(server, client)
	copied(client, server)
}

// counting counts written bytes.
type counting struct {
	io.Writer
	bytes *atomic.Int64
}

func (c counting) Write(p []byte) (int, error) {
	n, err := c.Writer.Write(p)
	c.bytes.Add(int64(n))
	return n, err
}

// usage is the total cost of polls.
type usage struct {
	polls       float64
	requests    node.Requests
	connections int64
	bytes       int64
	wall, cpu   time.Duration
	rss         float64 // MB: the peak of a program, the current value of a daemon
}

func (u usage) report(b *testing.B) {
	b.Helper()
	b.ReportMetric(float64(len(u.requests))/u.polls, "requests/poll")
	b.ReportMetric(float64(u.connections)/u.polls, "connections/poll")
	b.ReportMetric(float64(u.bytes)/u.polls, "wire-bytes/poll")
	b.ReportMetric(u.wall.Seconds()*1000/u.polls, "wall-ms/poll")
	b.ReportMetric(u.cpu.Seconds()*1000/u.polls, "cpu-ms/poll")
	b.ReportMetric(u.rss, "rss-MB")
	b.ReportMetric(0, "ns/op") // of one measurement, not meaningful
}

// measured counts around work, which fills in the rest.
func (g *polled) measured(work func(u *usage)) usage {
	var u usage
	g.n.Registry.Forget()
	connections, bytes := g.meter.connections.Load(), g.meter.bytes.Load()
	began := time.Now()
	work(&u)
	u.wall = time.Since(began)
	u.requests = g.n.Registry.Requests()
	u.connections, u.bytes = g.meter.connections.Load()-connections, g.meter.bytes.Load()-bytes
	return u
}

// programs runs commands one after another, and sums up their usage.
func (g *polled) programs(b *testing.B, polls float64, commands ...[]string) usage {
	b.Helper()
	file := filepath.Join(g.home, "used")
	return g.measured(func(u *usage) {
		u.polls = polls
		for _, argv := range commands {
			cmd := exec.CommandContext(b.Context(), g.usage, append([]string{file}, argv...)...)
			cmd.Env = append(os.Environ(), "HOME="+g.home)
			out, err := cmd.CombinedOutput()
			require.NoError(b, err, "%s: %s", argv, out)
			data, err := os.ReadFile(file)
			require.NoError(b, err)
			var cpu, rss int64
			_, err = fmt.Sscan(string(data), &cpu, &rss)
			require.NoError(b, err)
			u.cpu += time.Duration(cpu)
			u.rss = max(u.rss, float64(rss)*1024/1e6)
		}
	})
}

// daemon is a program that polls by itself, and is stopped (SIGSTOP) except while it is measured.
type daemon struct {
	pid   string
	agent string // part of its User-Agent
}

func (d daemon) signal(tb testing.TB, s syscall.Signal) {
	tb.Helper()
	pid, err := strconv.Atoi(d.pid)
	require.NoError(tb, err)
	require.NoError(tb, syscall.Kill(pid, s))
}

// polls lets a daemon poll a number of times, after one that is not counted.
func (g *polled) polls(b *testing.B, d daemon, polls int) usage {
	b.Helper()
	d.signal(b, syscall.SIGCONT)
	defer d.signal(b, syscall.SIGSTOP)
	g.n.Registry.Forget()
	g.await(b, d, 1)
	u := g.measured(func(u *usage) {
		before := cpu(b, d.pid)
		u.polls = float64(g.await(b, d, polls)) / float64(len(g.refs))
		u.cpu = cpu(b, d.pid) - before
		u.rss = memory(b, d.pid, "VmRSS")
	})
	u.wall = g.questions(u.requests) * time.Duration(u.polls)
	return u
}

// questions returns how long the requests of a poll take: from the first to the last one, the median of all polls.
func (g *polled) questions(all node.Requests) time.Duration {
	var spans []float64
	for poll := range slices.Chunk(all, len(g.refs)) {
		spans = append(spans, float64(poll[len(poll)-1].Start.Sub(poll[0].Start)))
	}
	return time.Duration(median(spans))
}

// await waits for a number of polls, and returns the number of HEAD requests.
func (g *polled) await(b *testing.B, d daemon, polls int) (heads int) {
	b.Helper()
	node.Eventually(b, d.agent+" polls", story.Ready, func() error {
		heads = 0
		for _, r := range g.n.Registry.Requests() {
			if strings.Contains(r.UserAgent, d.agent) && r.Method == http.MethodHead && r.Kind == node.Manifest {
				heads++
			}
		}
		if want := polls * len(g.refs); heads < want {
			return fmt.Errorf("%d of %d requests", heads, want)
		}
		return nil
	})
	return heads
}

// tool builds e2e/cmd/NAME.
func tool(tb testing.TB, dir, name string) string {
	tb.Helper()
	program := filepath.Join(dir, name)
	out, err := exec.CommandContext(tb.Context(), "go", "build", "-o", program, "../cmd/"+name).CombinedOutput()
	require.NoError(tb, err, "%s", out)
	return program
}

// peer returns the path of a program built by `tools/setup peers`.
func peer(tb testing.TB, part, program string) string {
	tb.Helper()
	out, err := exec.CommandContext(tb.Context(), "../../tools/setup", "where", part).Output()
	require.NoError(tb, err, "run: tools/setup peers")
	return filepath.Join(strings.TrimSpace(string(out)), program)
}
