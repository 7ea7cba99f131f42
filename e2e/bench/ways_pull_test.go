// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
)

// way is a way to pull images into containerd.
type way struct {
	name    string
	unpacks bool // unpacks into containerd
	pull    func(b *testing.B, p *pulls, w work, m *pulled)
}

// The ways. Those that pull one image after another do so like kubelet and people.
var (
	agentWay  = way{"agent", true, pullByAgent}
	daemonWay = way{"daemon", true, pullByDaemon}
	ctrWay    = way{"ctr", true, pullByCtr}
	criWay    = way{"CRI", true, pullByCRI}
	floorWay  = way{"floor", false, pullByFloor}
)

// feltWay is kubelet's own pull after the agent's.
const feltWay = "CRI after agent"

// pullPatience limits one pull.
const pullPatience = 10 * time.Minute

// prepare prepares a node that is new to the agent and wants the images.
func (p *pulls) prepare(b *testing.B, w work) {
	b.Helper()
	for _, dir := range []string{"var/lib/image-update-agent", "run/image-update-agent"} {
		require.NoError(b, os.RemoveAll(p.Path(dir)))
	}
	var config strings.Builder
	config.WriteString("confirmAfter: 0\nrequestsPerHour: 0\nimages:\n")
	for _, image := range w.images {
		fmt.Fprintf(&config, "- %s\n", image.ref)
	}
	config.WriteString(os.Getenv("BENCH_CONFIG") + "\n")
	p.WriteFile("etc/image-update-agent/config.yaml", config.String())
}

// ended records a program's usage, and asserts that it succeeded.
func (p *pulls) ended(b *testing.B, m *pulled, process *node.Process) {
	b.Helper()
	exit := process.Wait(pullPatience)
	require.Zero(b, exit.Code, "%s: %s: %+v\n%s", m.server, m.way, exit, tail(process.Stderr))
	m.own += exit.CPU
	m.rss = max(m.rss, exit.MaxRSS)
}

func tail(path string) string {
	text, _ := os.ReadFile(path)
	return string(text[max(0, len(text)-2000):])
}

func agentEnv() []string { return strings.Fields(os.Getenv("BENCH_ENV")) }

func pullByAgent(b *testing.B, p *pulls, _ work, m *pulled) {
	b.Helper()
	p.ended(b, m, p.StartAgentWith(agentEnv(), "run", "--once"))
}

// pullByDaemon starts the daemon, which begins at once or on a check request, and waits for the answer.
func pullByDaemon(b *testing.B, p *pulls, _ work, m *pulled) {
	b.Helper()
	daemon := p.StartAgentWith(agentEnv(), "run")
	node.Eventually(b, "daemon", story.Ready, func() error {
		_, err := os.Stat(p.Path("run/image-update-agent/agent.sock"))
		return err
	})
	r := p.Agent("check", "--output", "json")
	require.Zero(b, r.Code, r.Stderr)
	used := p.UsedBy(p.AgentProgram(), "run", "--root", p.Root)
	m.own, m.rss = used.CPU, used.Peak
	require.Zero(b, daemon.Stop().Code)
	var status status.Status
	require.NoError(b, json.Unmarshal([]byte(r.Stdout), &status))
	for _, image := range status.Images {
		require.True(b, image.Staged, "%+v", image)
	}
}

func pullByCtr(b *testing.B, p *pulls, w work, m *pulled) {
	b.Helper()
	for _, image := range w.images {
		p.ended(b, m, p.Program("ctr", p.Containerd.Ctr(), "-a", p.Containerd.Socket, "-n", "k8s.io",
			"images", "pull", "--hosts-dir", p.Path("etc/containerd/certs.d"), image.ref))
	}
}

func pullByCRI(b *testing.B, p *pulls, w work, _ *pulled) {
	b.Helper()
	cri := p.CRI()
	for _, image := range w.images {
		got, err := cri.Pull(image.ref)
		require.NoError(b, err)
		require.Equal(b, image.config.String(), got, image.ref)
	}
}

func pullByFloor(b *testing.B, p *pulls, w work, m *pulled) {
	b.Helper()
	argv := []string{p.floor, "pull"}
	for _, image := range w.images {
		repository, tag, _ := strings.Cut(strings.TrimPrefix(image.ref, p.Registry.Host+"/"), ":")
		argv = append(argv, p.Registry.URL()+"/v2/"+repository+"/manifests/"+tag)
	}
	process := p.Program("floor", argv...)
	p.ended(b, m, process)
	var sent, plain int64
	lines := strings.Split(strings.TrimSpace(tail(process.Stdout)), "\n") // after those of earlier rounds
	_, err := fmt.Sscan(lines[len(lines)-1], &sent, &plain)
	require.NoError(b, err)
	require.Equal(b, w.bytes, sent, "bytes")
}

// check asserts that containerd has the pulled images: the digests, every layer with the right size, unpacked; and that
// each was fetched once. If containerd fetches a layer in parts, the registry may send more than that.
func (p *pulls) check(b *testing.B, w work, m pulled, parts bool) {
	b.Helper()
	client, err := containerd.New(p.Containerd.Socket, containerd.WithDefaultNamespace("k8s.io"))
	require.NoError(b, err)
	defer func() { _ = client.Close() }()
	ctx := namespaces.WithNamespace(b.Context(), "k8s.io")
	what := fmt.Sprintf("%s: %s: %s", m.server, m.work, m.way)
	for _, image := range w.images {
		records, err := client.ImageService().List(ctx, "target.digest=="+image.digest.String())
		require.NoError(b, err)
		require.NotEmpty(b, records, "%s: %s: no record of %s", what, image.ref, image.digest)
		for d, size := range image.layers {
			info, err := client.ContentStore().Info(ctx, digest.Digest(d))
			require.NoError(b, err, "%s: %s", what, image.ref)
			require.Equal(b, size, info.Size, "%s: %s: %s", what, image.ref, d)
		}
		snapshot, err := client.SnapshotService("overlayfs").Stat(ctx, image.chain.String())
		require.NoError(b, err, "%s: %s", what, image.ref)
		require.Equal(b, snapshots.KindCommitted, snapshot.Kind, "%s: %s", what, image.ref)
	}
	if parts {
		require.GreaterOrEqual(b, m.bytes, w.bytes, "%s: bytes of layers", what)
	} else {
		require.Equal(b, w.bytes, m.bytes, "%s: bytes of layers: %s", what, twice(p.Registry.Requests()))
	}
}

// twice returns the blobs that were requested more than once.
func twice(all node.Requests) string {
	var text strings.Builder
	seen := map[string]bool{}
	for _, r := range all {
		if r.Kind == node.Blob && seen[r.Reference] {
			fmt.Fprintf(&text, "%s again (%d bytes); ", r.Reference, r.Bytes)
		}
		seen[r.Reference] = true
	}
	return text.String()
}
