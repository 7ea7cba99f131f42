// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
)

// sample limits the images with which programs that start once per image are measured; the figures are scaled to the
// poll's number.
const sample = 50

// polled is a registry with images, and its client.
type polled struct {
	n     *node.Node
	meter *meter
	refs  []string
	home  string // of the peers
	usage string // cmd/usage
	agent daemon
	sync  daemon
}

// BenchmarkPoll measures a poll without changes, of the agent, of the minimum (floor), and of comparable programs, on
// the same docker-registry. All images of a poll are one repository there, under different names: its digest, manifest
// and tag list come from the registry.
//
// The agent and regsync are running daemons, floor and requests are programs that poll several times in one run, the
// others start once per image. The agent's poll is the whole cycle.
func BenchmarkPoll(b *testing.B) {
	n := node.Start(b, node.Options{Containerd: node.Containerd2})
	m := startMeter(b, n)
	n.Registry.Intercept(alias)
	for _, tags := range []int{50, 1000} {
		publishTags(b, n, tags)
		for _, images := range []int{20, 200, 1000} {
			b.Run(fmt.Sprintf("%dx%d", images, tags), func(b *testing.B) {
				g := startPolled(b, n, m, images, tags)
				b.Run("floor", func(b *testing.B) { g.floor(b).report(b) })
				b.Run("requests", func(b *testing.B) { g.requests(b).report(b) })
				b.Run("agent", func(b *testing.B) { g.polls(b, g.agent, g.few()).report(b) })
				b.Run("regsync", func(b *testing.B) { g.polls(b, g.sync, g.few()).report(b) })
				b.Run("agent-by-regsync", g.paired)
				g.loops(b)
			})
		}
	}
}

// alias makes the registry's repository bench/tags50 answer for tags50/app1 and similar names.
func alias(_ http.ResponseWriter, r *http.Request) bool {
	parts := strings.SplitN(r.URL.Path, "/", 5) // "", v2, tags50, app1, manifests/...
	if len(parts) == 5 && strings.HasPrefix(parts[2], "tags") {
		r.URL.Path = "/v2/bench/" + parts[2] + "/" + parts[4]
	}
	return false
}

// publishTags publishes one small image under that many tags: the followed one, its long tag, and older ones.
func publishTags(b *testing.B, n *node.Node, count int) {
	b.Helper()
	image, err := random.Image(1000, 2)
	require.NoError(b, err)
	config, err := image.ConfigFile()
	require.NoError(b, err)
	config.OS, config.Architecture = "linux", runtime.GOARCH
	image, err = mutate.ConfigFile(image, config)
	require.NoError(b, err)
	repository, err := name.NewRepository(n.Registry.Ref(fmt.Sprintf("bench/tags%d", count)), name.Insecure)
	require.NoError(b, err)
	require.NoError(b, remote.Write(repository.Tag("1.0.0-rev1"), image))
	tags := []string{"1.0.0-rev1-build1.1"}
	for i := 1; len(tags) < count-1; i++ {
		tags = append(tags, fmt.Sprintf("0.9.%d-rev1", i), fmt.Sprintf("0.9.%d-rev1-build1.1", i))
	}
	for _, tag := range tags[:count-1] {
		require.NoError(b, remote.Tag(repository.Tag(tag), image))
	}
}

// startPolled starts both daemons and waits until their polls request only the followed tags.
func startPolled(b *testing.B, n *node.Node, m *meter, images, tags int) *polled {
	b.Helper()
	g := &polled{n: n, meter: m, home: b.TempDir()}
	g.usage = tool(b, g.home, "usage")
	for i := range images {
		g.refs = append(g.refs, fmt.Sprintf("%s/tags%d/app%d:1.0.0-rev1", m.host, tags, i))
	}
	n.WriteFile("etc/image-update-agent/config.yaml",
		"interval: 1s\nconfirmAfter: 0\nrequestsPerHour: 0\nimages:\n- "+strings.Join(g.refs, "\n- ")+"\n")
	process := story.StartDaemon(b, n)
	b.Cleanup(func() { g.agent.signal(b, syscall.SIGCONT); process.Stop() })
	g.agent = daemon{pidOf(b, n), "image-update-agent"}
	g.steady(b, g.agent)
	lists := n.Registry.Requests().Count("GET", node.Tags)
	b.Logf("lists of tags since the start: %d for %d images", lists, images)
	g.agent.signal(b, syscall.SIGSTOP)
	g.sync = g.startRegsync(b)
	g.steady(b, g.sync)
	g.sync.signal(b, syscall.SIGSTOP)
	return g
}

// steady waits for two polls in which a daemon requests only tags.
func (g *polled) steady(b *testing.B, d daemon) {
	b.Helper()
	node.Eventually(b, d.agent+": a steady poll", 15*time.Minute, func() error {
		all := g.n.Registry.Requests()
		last := all[max(0, len(all)-2*len(g.refs)):]
		if heads := last.Count("HEAD", node.Manifest); heads < 2*len(g.refs) {
			return fmt.Errorf("%d HEAD requests among the last %d of %d", heads, len(last), len(all))
		}
		return nil
	})
}

// startRegsync makes regsync's server keep copies in OCI layouts up to date, every second: one HEAD each, like the
// agent.
func (g *polled) startRegsync(b *testing.B) daemon {
	b.Helper()
	var config strings.Builder
	fmt.Fprintf(&config, "version: 1\ncreds:\n- registry: %q\n  tls: disabled\n"+
		"defaults:\n  interval: 1s\n  parallel: 1\nsync:\n", g.meter.host)
	for i, ref := range g.refs {
		fmt.Fprintf(&config, "- {source: %q, target: \"ocidir://%s/copies/app%d:1.0.0-rev1\", type: image}\n", ref, g.home, i)
	}
	file := filepath.Join(g.home, "regsync.yaml")
	require.NoError(b, os.WriteFile(file, []byte(config.String()), 0o600))
	g.n.Registry.Forget()
	cmd := exec.CommandContext(b.Context(), peer(b, "regclient", "regsync"), "server", "-c", file, "-v", "error")
	cmd.Env = append(os.Environ(), "HOME="+g.home)
	require.NoError(b, cmd.Start())
	b.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return daemon{strconv.Itoa(cmd.Process.Pid), "regclient/regsync"}
}

// rounds returns enough rounds to make the start of the program negligible.
func (g *polled) rounds() int { return 4000 / len(g.refs) }

// few returns the number of a daemon's polls measured at a time: one of 1,000 images takes seconds.
func (g *polled) few() int { return min(5, max(1, 1000/len(g.refs))) }

func (g *polled) floor(b *testing.B) usage {
	b.Helper()
	argv := []string{tool(b, g.home, "floor"), strconv.Itoa(g.rounds())}
	for _, ref := range g.refs {
		repository, tag, _ := strings.Cut(strings.TrimPrefix(ref, g.meter.host+"/"), ":")
		argv = append(argv, "http://"+g.meter.host+"/v2/"+repository+"/manifests/"+tag)
	}
	return g.programs(b, float64(g.rounds()), argv)
}

func (g *polled) requests(b *testing.B) usage {
	b.Helper()
	argv := []string{tool(b, g.home, "requests"), strconv.Itoa(g.rounds()), g.n.Path("etc/containerd/certs.d")}
	return g.programs(b, float64(g.rounds()), append(argv, g.refs...))
}

// loops measures programs that start once per image.
func (g *polled) loops(b *testing.B) {
	b.Helper()
	crane, regctl := peer(b, "crane", "crane"), peer(b, "regclient", "regctl")
	for name, command := range map[string][]string{
		"crane":  {crane, "digest", "--insecure"},
		"regctl": {regctl, "--host", "reg=" + g.meter.host + ",tls=disabled", "manifest", "head"},
		"skopeo": {"skopeo", "inspect", "--raw", "--tls-verify=false"},
	} {
		b.Run(name, func(b *testing.B) {
			refs := g.refs[:min(len(g.refs), sample)]
			var commands [][]string
			for _, ref := range refs {
				if name == "skopeo" {
					ref = "docker://" + ref
				}
				commands = append(commands, append(append([]string{}, command...), ref))
			}
			g.programs(b, float64(len(refs))/float64(len(g.refs)), commands...).report(b)
		})
	}
}

// paired measures agent and regsync alternately, so that both have the same conditions.
func (g *polled) paired(b *testing.B) {
	var ratios, requests []float64
	floor := g.requests(b)
	for range 5 {
		agent, sync := g.polls(b, g.agent, g.few()), g.polls(b, g.sync, g.few())
		theirs := sync.cpu.Seconds() / sync.polls
		ratios = append(ratios, agent.cpu.Seconds()/agent.polls/theirs)
		requests = append(requests, floor.cpu.Seconds()/floor.polls/theirs)
	}
	b.ReportMetric(median(ratios), "cpu-ratio")
	b.ReportMetric(median(requests), "requests-cpu-ratio")
	b.ReportMetric(0, "ns/op")
}
