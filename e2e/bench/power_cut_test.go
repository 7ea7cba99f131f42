// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/stretchr/testify/require"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
)

// BenchmarkPowerCut measures the benefit and the cost of the local registry.
//
//   - boot: from kubelet's start until four pods answer, after a power cut. With IfNotPresent; with Always and the own
//     host last, the registry refused or a black hole (dial_timeout = "2s", which containerd 1.7 does not know); with
//     Always and the local registry first
//   - container: from its end until it answers again, with the registry refused
//   - pull: of an image on the node from a working registry, by CRI as for kubelet
//   - answer: from the start of a connection to the end of the answer, of a process started for it
//
// BENCH_ROUNDS is the number of rounds (10), BENCH_SERVERS=2,1.7 the versions of containerd.
func BenchmarkPowerCut(b *testing.B) {
	rounds, err := strconv.Atoi(cmp.Or(os.Getenv("BENCH_ROUNDS"), "10"))
	require.NoError(b, err, "BENCH_ROUNDS")
	servers := []node.Version{node.Containerd2, node.Containerd17}
	for b.Loop() {
		for _, server := range chosen("BENCH_SERVERS", servers, func(v node.Version) string { return string(v) }) {
			p := newPowerCuts(b, server)
			for range rounds {
				p.boots()
				p.ends()
			}
			p.pulls(rounds * 5)
			p.answers(rounds * 10)
			p.print()
		}
	}
	b.ReportMetric(0, "ns/op") // of the whole series, not meaningful
}

// powerCuts is a node without a daemon, with its measurements, in ms.
type powerCuts struct {
	*node.Node
	b      *testing.B
	server node.Version
	own    *node.LocalRegistry
	away   map[node.Away]node.Upstream
	pods   []node.Pod
	images []string
	ms     map[string][]float64
}

func newPowerCuts(b *testing.B, server node.Version) *powerCuts {
	b.Helper()
	n := node.Start(b, node.Options{Containerd: server, Kubelet: true, KubeletConfig: node.ByDefault})
	p := &powerCuts{Node: n, b: b, server: server, own: n.LocalRegistry(), ms: map[string][]float64{}}
	p.away = map[node.Away]node.Upstream{
		node.Refused: n.StartAway(node.Refused), node.Blackhole: n.StartAway(node.Blackhole),
	}
	for _, name := range []string{"dex", "gangway", "proxy", "velum"} {
		story.Rel(n, "demo/"+name, "4.0.0-rev1-build1.1")
		image := n.Registry.Ref("demo/" + name + ":4.0.0-rev1")
		p.pods, p.images = append(p.pods, node.Pod{Name: name, Image: image, Port: n.FreePort()}), append(p.images, image)
		n.WritePod(p.pods[len(p.pods)-1])
	}
	p.areUp()
	story.SaveTable(b, n, p.images...)
	return p
}

func (p *powerCuts) areUp() {
	for _, pod := range p.pods {
		p.WaitAnswer(pod.Port, "4.0.0-rev1-build1.1")
	}
}

// hosts writes a hosts.toml with an upstream, and the agent adds the local registry.
func (p *powerCuts) hosts(up node.Upstream, enable ...string) {
	p.b.Helper()
	require.NoError(p.b, os.RemoveAll(p.Path(story.CertsD+p.Registry.Host)))
	story.AdminsHosts(p.Node, p.Registry.Host, up)
	if len(enable) > 0 {
		r := p.Agent(slices.Concat([]string{"local-registry", "enable", p.Registry.Host, "--write"}, enable[1:])...)
		require.Equal(p.b, 0, r.Code, "%s\n%s", r.Stdout, r.Stderr)
	}
}

// boots cuts the power once for each configuration.
func (p *powerCuts) boots() {
	p.b.Helper()
	refused := p.away[node.Refused]
	p.hosts(refused)
	p.boot("boot, IfNotPresent", "IfNotPresent")
	p.hosts(refused, fallback...)
	p.boot("boot, Always, last, refused", "Always")
	p.hosts(refused, first...)
	p.boot("boot, Always, first", "Always")
	if len(p.ms[blackhole]) < maxBlackholes {
		p.hosts(p.away[node.Blackhole], fallback...)
		p.boot(blackhole, "Always")
	}
}

// The arguments of `local-registry enable`.
var fallback, first = []string{"last"}, []string{"first", "--gate"}

const (
	blackhole     = "boot, Always, last, black hole"
	maxBlackholes = 2 // of 8 s each, and of 2 minutes on containerd 1.7
	// bootPatience allows four pulls, one after another, each of which waits 30 s for a connection.
	bootPatience = 4 * time.Minute
)

// boot cuts the power and measures the time from kubelet's start until all pods answer.
func (p *powerCuts) boot(way, policy string) {
	p.b.Helper()
	p.PowerOff()
	for _, pod := range p.pods {
		pod.PullPolicy = policy
		p.WritePod(pod)
	}
	p.Containerd.Start()
	began := time.Now()
	p.Kubelet.Start()
	for _, pod := range p.pods {
		node.Eventually(p.b, pod.Name, bootPatience, func() error {
			_, err := node.Answer(pod.Port)
			return err
		})
	}
	p.add(way, began)
}

// ends stops a container of two pods at a random moment, because kubelet checks once a second.
func (p *powerCuts) ends() {
	p.b.Helper()
	for i, way := range []struct {
		name   string
		enable []string
	}{{"container, last, refused", fallback}, {"container, first", first}} {
		p.hosts(p.away[node.Refused], way.enable...)
		p.forgetEnds()
		<-time.After(4*time.Second + rand.N(time.Second))
		began := time.Now()
		p.CRI().Stop(p.pods[i].Name)
		p.WaitAnswer(p.pods[i].Port, "4.0.0-rev1-build1.1")
		p.add(way.name, began)
	}
}

// forgetEnds makes kubelet forget all ended containers: one that ends a second time within ten minutes gets a back-off.
func (p *powerCuts) forgetEnds() {
	p.b.Helper()
	p.Kubelet.Stop()
	runtime := p.CRI().Runtime
	list, err := runtime.ListContainers(p.b.Context(), &cri.ListContainersRequest{})
	require.NoError(p.b, err)
	for _, c := range list.GetContainers() {
		if c.GetState() != cri.ContainerState_CONTAINER_RUNNING {
			_, err := runtime.RemoveContainer(p.b.Context(), &cri.RemoveContainerRequest{ContainerId: c.GetId()})
			require.NoError(p.b, err)
		}
	}
	p.Kubelet.Start()
}

// pulls runs pulls of an image alternately without the local registry, with it last and first, and, some times, with one that
// hangs.
func (p *powerCuts) pulls(rounds int) {
	p.b.Helper()
	up := node.Upstream{URL: p.Registry.URL()}
	pull := func(way string) {
		began := time.Now()
		_, err := p.CRI().Pull(p.images[0])
		require.NoError(p.b, err)
		p.add(way, began)
	}
	for range rounds {
		p.hosts(up)
		pull("pull, without")
		p.hosts(up, fallback...)
		pull("pull, last")
		p.hosts(up, first...)
		pull("pull, first")
	}
	p.own.Serve(node.Hangs)
	for range maxHangs {
		pull("pull, first, and it hangs")
	}
	p.own.Serve(node.Serves)
}

const maxHangs = 5 // of 5 s each

// answers measures answers of the local registry, whose process is started for each request.
func (p *powerCuts) answers(rounds int) {
	p.b.Helper()
	for range rounds {
		began := time.Now()
		answer, err := p.own.Ask(p.b.Context(), "HEAD /v2/demo/dex/manifests/4.0.0-rev1?ns="+p.Registry.Host+
			" HTTP/1.1\r\nHost: 127.0.0.1\r\nUser-Agent: containerd/1.7.24\r\n\r\n")
		require.NoError(p.b, err)
		require.True(p.b, strings.HasPrefix(answer, "HTTP/1.1 200 "), answer)
		p.add("answer", began)
	}
}

func (p *powerCuts) add(way string, began time.Time) {
	p.ms[way] = append(p.ms[way], float64(time.Since(began).Microseconds())/1000)
}

func (p *powerCuts) print() {
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintf(out, "containerd %s\tn\tmedian ms\tleast\tmost\n", p.server)
	for _, way := range slices.Sorted(maps.Keys(p.ms)) {
		all := p.ms[way]
		fmt.Fprintf(out, "%s\t%d\t%.1f\t%.1f\t%.1f\n", way, len(all), median(all), slices.Min(all), slices.Max(all))
	}
	_ = out.Flush()
}
