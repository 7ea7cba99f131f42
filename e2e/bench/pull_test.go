// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/e2e/node"
)

// server is a containerd for measuring pulls, with the ways to pull.
type server struct {
	name string
	node.Server
	ways  []way
	works []string
}

// pullServers returns containerds with their default settings, and then with settings for faster pulls.
//
// The transfer service pulls for CRI and ctr since containerd 2.1. Its settings do not apply to a client that pulls
// itself, as the agent does: such a client requests parallel unpacking, which needs a snapshotter that can "rebase"
// (overlayfs since 2.2). The program on the PATH applies to every pull.
func pullServers() []server {
	const transfer = "\n[plugins.\"io.containerd.transfer.v1.local\"]\n  "
	const unpacks, buffer = "max_concurrent_unpacks = 4\n", "concurrent_layer_fetch_buffer = 8388608\n"
	tuned := func(name, gunzip, config string) server {
		if config != "" {
			config = transfer + strings.ReplaceAll(config, "\n", "\n  ")
		}
		return server{
			name: name, Server: node.Server{Version: node.Containerd2, Gunzip: gunzip, Config: config},
			ways: []way{agentWay, criWay}, works: []string{"large", "set", "large zstd", "set zstd"},
		}
	}
	all := []way{agentWay, daemonWay, ctrWay, criWay, floorWay}
	plain := tuned("2", "", "")
	plain.ways = all
	old := tuned("1.6", "", "")
	old.Version, old.ways = node.Containerd16, all
	pigz := tuned("1.6 unpigz", "unpigz", "")
	pigz.Version = node.Containerd16
	lts := tuned("1.7", "", "")
	lts.Version = node.Containerd17
	return []server{
		old, pigz, lts, plain,
		tuned("2 unpigz", "unpigz", ""),
		tuned("2 igzip", "igzip", ""),
		tuned("2 unpacks=4", "", unpacks),
		tuned("2 buffer=8M", "", buffer),
		tuned("2 unpacks=4 buffer=8M", "", unpacks+buffer),
		tuned("2 unpacks=4 igzip", "igzip", unpacks),
	}
}

// BenchmarkPull measures pulls into a fresh containerd each time: by the agent (`run --once`, and a check request to a
// daemon), by ctr, by CRI, and by a program that does only the minimum (cmd/floor). One round has all of them, so that
// ratios within a round are for the same conditions.
//
//	BENCH_PAIRS=8         rounds
//	BENCH_SERVERS=2,1.6   which servers, by name; empty: all
//	BENCH_WORKS=large     which images: large, set, "large zstd", "set zstd"
//	BENCH_WAYS=agent,CRI  which ways to pull
//	BENCH_CONFIG=...      additional lines of the agent's configuration
//	BENCH_ENV=...         the environment of the agent: NAME=VALUE
//
// It prints tables at the end, and appends all figures to .build/pulls.tsv.
func BenchmarkPull(b *testing.B) {
	pairs, err := strconv.Atoi(cmp.Or(os.Getenv("BENCH_PAIRS"), "8"))
	require.NoError(b, err, "BENCH_PAIRS")
	p := startPulls(b)
	for b.Loop() {
		for round := range pairs {
			for _, s := range chosen("BENCH_SERVERS", pullServers(), func(s server) string { return s.name }) {
				p.round(b, round, s)
			}
		}
	}
	b.ReportMetric(0, "ns/op") // of the whole series, not meaningful
	p.print(os.Stdout, pairs)
}

// chosen returns the elements named in an environment variable, all of them if it is empty.
func chosen[T any](variable string, all []T, name func(T) string) []T {
	names := os.Getenv(variable)
	return slices.DeleteFunc(slices.Clone(all), func(t T) bool {
		return names != "" && !slices.Contains(strings.Split(names, ","), name(t))
	})
}

// pulls is a node with a fresh containerd for each pull.
type pulls struct {
	*node.Node
	works  []work
	floor  string // the program
	record *os.File
	all    []pulled
}

// pulled is one pull, or the consecutive pulls of all images of a work.
type pulled struct {
	round             int
	server, work, way string
	wall, own, theirs time.Duration // CPU of the pulling program, and of containerd
	rss, peak         int64         // peaks of the program, and of containerd
	requests          int
	bytes             int64 // of layers, as sent by the registry
}

func startPulls(b *testing.B) *pulls {
	b.Helper()
	p := &pulls{Node: node.Start(b, node.Options{})}
	p.works = chosen("BENCH_WORKS", publishWorks(b, p.Node), func(w work) string { return w.name })
	p.floor = p.Tool("floor")
	p.AgentProgram()
	record, err := os.Create(filepath.Join(filepath.Dir(p.floor), "pulls.tsv"))
	require.NoError(b, err)
	b.Cleanup(func() { _ = record.Close() })
	fmt.Fprintln(record, "round\tserver\twork\tway\twall s\tcpu s\tcontainerd cpu s\tpeak MB\tcontainerd peak MB\trequests\tlayers MB")
	p.record = record
	return p
}

// round pulls everything once in every way.
func (p *pulls) round(b *testing.B, round int, s server) {
	b.Helper()
	for _, w := range p.works {
		if !slices.Contains(s.works, w.name) {
			continue
		}
		for _, by := range chosen("BENCH_WAYS", s.ways, func(w way) string { return w.name }) {
			p.measure(b, round, s, w, by)
		}
	}
}

// measure pulls into a fresh containerd, checks the result, and then has CRI pull the floating tag after the agent, as
// kubelet will.
func (p *pulls) measure(b *testing.B, round int, s server, w work, by way) {
	b.Helper()
	c := p.FreshContainerd(s.Server)
	defer c.Discard()
	p.prepare(b, w)
	m := pulled{round: round, server: s.name, work: w.name, way: by.name}
	p.counted(b, &m, c, w, func() { by.pull(b, p, w, &m) })
	if by.unpacks {
		p.check(b, w, m, strings.Contains(s.Config, "buffer") && by.name == criWay.name)
	}
	p.keep(m)
	if by.name == agentWay.name {
		after := pulled{round: round, server: s.name, work: w.name, way: feltWay}
		p.counted(b, &after, c, w, func() { criWay.pull(b, p, w, &after) })
		require.Equal(b, len(w.images), p.Registry.Requests().Count("HEAD", node.Manifest), "after staging")
		require.Equal(b, len(w.images), after.requests, "after staging: %+v", p.Registry.Requests())
		p.keep(after)
	}
}

// counted records the usage of a pull.
func (p *pulls) counted(b *testing.B, m *pulled, c *node.Containerd, w work, pull func()) {
	b.Helper()
	p.Registry.Forget()
	before, began := c.Used(), time.Now()
	pull()
	m.wall = time.Since(began)
	after := c.Used()
	m.theirs, m.peak = after.CPU-before.CPU, after.Peak
	for _, r := range p.Registry.Requests() {
		m.requests++
		if w.layers[r.Reference] > 0 {
			m.bytes += r.Bytes
		}
	}
}

func (p *pulls) keep(m pulled) {
	p.all = append(p.all, m)
	fmt.Fprintf(p.record, "%d\t%s\t%s\t%s\t%.3f\t%.2f\t%.2f\t%.1f\t%.1f\t%d\t%.2f\n", m.round, m.server, m.work, m.way,
		m.wall.Seconds(), m.own.Seconds(), m.theirs.Seconds(), float64(m.rss)/1e6, float64(m.peak)/1e6,
		m.requests, float64(m.bytes)/1e6)
}
