// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
)

// The ways to change the image of a running pod.
const (
	wayRebuild  = "rebuild"
	wayRevision = "revision"
	wayInit     = "rebuild of an init image"
	wayRollback = "rollback"
	wayShortly  = "rebuild with the registry lost for 1 s"
	wayLong     = "rebuild with the registry lost for 20 s"
	wayEdit     = "edit by hand with the image on the node"
	wayLarge    = "edit by hand with 200 MB to pull"
	waySlow     = "edit by hand with 200 MB to pull at 100 Mbit/s"
)

const (
	// backPatience limits a pod's downtime: kubelet alone may take a minute after a registry was away.
	backPatience = 3 * time.Minute
	// largeSize is the size of the image to pull, in layers that do not compress.
	largeSize, largeParts = 200_000_000, 8
	// slowLine is 100 Mbit/s, in bytes.
	slowLine = 12_500_000
)

// BenchmarkDowntime measures the downtime of a static pod's server when its image changes: from the last answer of the
// old one to the first of the new, for a client that connects every 10 ms. The agent runs `apply` and `rollback`,
// sometimes losing the registry between stop and start; on the same kubelet the image in the pod manifest is also
// edited by hand.
//
//	BENCH_ROUNDS=10              rounds of each way, half as many of those that lose the registry or pull
//	BENCH_SERVERS=2,1.7          which containerds; empty: both
//	BENCH_WAYS=rebuild,revision  which ways, by their names in the table (edits go together); empty: all
//
// It prints each change, with the requests to the registry while the pod was down, and then a table.
func BenchmarkDowntime(b *testing.B) {
	rounds, err := strconv.Atoi(cmp.Or(os.Getenv("BENCH_ROUNDS"), "10"))
	require.NoError(b, err, "BENCH_ROUNDS")
	servers := []node.Version{node.Containerd2, node.Containerd17}
	for b.Loop() {
		for _, server := range chosen("BENCH_SERVERS", servers, func(v node.Version) string { return string(v) }) {
			d := &downtimes{Node: node.Start(b, node.Options{Containerd: server, Kubelet: true, KubeletConfig: node.ByDefault}), b: b, server: server}
			d.byAgent(rounds)
			d.byHand(rounds)
			d.print(os.Stdout)
		}
	}
	b.ReportMetric(0, "ns/op") // of the whole series, not meaningful
}

// downtimes is a node with its measurements.
type downtimes struct {
	*node.Node
	b      *testing.B
	server node.Version
	probe  *node.Prober
	all    []downtime

	revision, build int // of the newest release
}

// downtime is one change of the running image.
type downtime struct {
	way string
	node.Outage
	asked node.Requests // of the registry, while the pod was down
	up    time.Time     // when the lost registry came back
}

// measure calls act and waits for an answer of the new image.
func (d *downtimes) measure(way, answer string, act func(m *downtime)) {
	d.b.Helper()
	d.settle()
	d.probe.Forget()
	d.Registry.Forget()
	m := downtime{way: way}
	act(&m)
	m.Outage = d.probe.Await(answer, backPatience)
	for _, r := range d.Registry.Requests() {
		if r.Start.After(m.Last) && r.Start.Before(m.First) {
			m.asked = append(m.asked, r)
		}
	}
	d.all = append(d.all, m)
	fmt.Printf("containerd %s: %s: %.2f s\n", d.server, way, m.Down().Seconds())
	for _, r := range m.asked {
		fmt.Printf("  %.2f s %s %s:%s by %s: %d\n", r.Start.Sub(m.Last).Seconds(), r.Method, r.Repository, r.Reference, r.UserAgent, r.Status)
	}
}

// settle waits until the running container is older than any wait of the agent, and then up to a second more: kubelet
// checks its containers once a second, and a stop may come at any moment between two checks. Consecutive rounds would
// all come right after one.
func (d *downtimes) settle() {
	<-time.After(4*time.Second + rand.N(time.Second))
}

// byAgent makes a daemon change its own pods.
func (d *downtimes) byAgent(rounds int) {
	d.b.Helper()
	d.WriteFile(story.ConfigFile, "interval: 0\n")
	port, proxy := d.FreePort(), d.FreePort()
	story.Template(d.Node, port, d.Registry.Ref("demo/velum:__TAG__"))
	d.WriteFile(story.TemplateDir+"proxy.yaml", strings.ReplaceAll(story.VelumTemplate(proxy, d.Registry.Ref("demo/proxy:__TAG__")), "velum", "proxy")+
		"  initContainers:\n  - name: init\n    image: "+d.Registry.Ref("demo/init:__TAG__")+"\n    args: [end]\n")
	d.release(1, "demo/velum", "demo/proxy", "demo/init")
	first := d.long()
	d.agent("run", "--once")
	d.WaitAnswer(port, first)
	d.WaitAnswer(proxy, first)
	daemon := story.StartDaemon(d.b, d.Node)
	defer daemon.Stop()
	d.agent("check")

	d.probe = d.Probe(proxy)
	for range d.rounds(wayInit, rounds) {
		d.release(0, "demo/init")
		d.measure(wayInit, first, func(*downtime) { d.agent("apply", "init") })
	}
	d.probe.Stop()
	d.probe = d.Probe(port)
	for range d.rounds(wayRebuild, rounds) {
		d.release(0, "demo/velum")
		d.measure(wayRebuild, d.long(), func(*downtime) { d.agent("apply", "velum") })
	}
	for range d.rounds(wayRevision, rounds) {
		d.release(1, "demo/velum")
		d.measure(wayRevision, d.long(), func(*downtime) { d.agent("apply", "velum") })
	}
	d.backAndLost(rounds)
	d.probe.Stop()
}

// backAndLost measures the ways after which the pod manifest has a digest. It ends with the next release, so that each
// begins with one.
func (d *downtimes) backAndLost(rounds int) {
	d.b.Helper()
	for range d.rounds(wayRollback, rounds) {
		good := d.fresh()
		d.release(0, "demo/velum")
		d.agent("apply", "velum")
		d.measure(wayRollback, good, func(*downtime) { d.agent("rollback", "velum") })
	}
	for range d.rounds(wayShortly, (rounds+1)/2) {
		d.loseRegistry(wayShortly, time.Second)
	}
	for range d.rounds(wayLong, (rounds+1)/2) {
		d.loseRegistry(wayLong, 20*time.Second)
	}
}

// fresh brings the pod to a new revision, and returns its answer.
func (d *downtimes) fresh() string {
	d.b.Helper()
	d.release(1, "demo/velum")
	d.agent("apply", "velum")
	return d.long()
}

// loseRegistry measures a rebuild whose registry goes away when kubelet asks it, right after the stop, and comes back
// after a time.
func (d *downtimes) loseRegistry(way string, away time.Duration) {
	d.b.Helper()
	d.fresh()
	d.release(0, "demo/velum")
	d.measure(way, d.long(), func(m *downtime) {
		asked := make(chan struct{})
		var once sync.Once
		d.Registry.Intercept(func(_ http.ResponseWriter, r *http.Request) bool {
			if !strings.HasPrefix(r.UserAgent(), story.CriAgent) {
				return false
			}
			once.Do(func() { close(asked) })
			panic(http.ErrAbortHandler)
		})
		apply := d.StartAgent("apply", "velum")
		<-asked
		d.Registry.Down()
		<-time.After(away)
		d.Registry.Intercept(nil)
		m.up = time.Now()
		d.Registry.Up()
		require.Equal(d.b, 0, apply.Wait(backPatience).Code)
	})
}

// release publishes the next build, of the next revision or of this one, and stages it.
func (d *downtimes) release(revisions int, repositories ...string) {
	d.b.Helper()
	d.revision += revisions
	d.build++
	for _, repository := range repositories {
		story.Rel(d.Node, repository, d.long())
	}
	if d.build > 1 {
		d.agent("check")
	}
}

func (d *downtimes) long() string { return fmt.Sprintf("4.0.0-rev%d-build1.%d", d.revision, d.build) }

// rounds returns how often a way is measured.
func (d *downtimes) rounds(way string, rounds int) int {
	return rounds * len(chosen("BENCH_WAYS", []string{way}, func(w string) string { return w }))
}

// agent runs a verb of the agent that must succeed.
func (d *downtimes) agent(args ...string) {
	d.b.Helper()
	r := d.Agent(args...)
	require.Equal(d.b, 0, r.Code, "%q\n%s\n%s", args, r.Stdout, r.Stderr)
}
