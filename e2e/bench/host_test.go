// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubic-project/image-update-agent/e2e/host"
	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
)

// BenchmarkHostIdle measures the installed service, as the package sets it up, while nothing happens: CPU time and
// wakeups, and the memory of a node with twenty images whose pods run. BENCH_IDLE is the duration (10m, in which it
// observes the node once).
func BenchmarkHostIdle(b *testing.B) {
	length, err := time.ParseDuration(cmp.Or(os.Getenv("BENCH_IDLE"), "10m"))
	require.NoError(b, err, "BENCH_IDLE")
	n := node.Start(b, node.Options{Containerd: node.Containerd2})
	h := host.New(b, n, host.Systemd257)
	h.Install(host.PackagesOf(b).Older)
	h.WriteFile("/etc/image-update-agent/config.yaml", strings.TrimPrefix(story.HostConfig, "interval: 0\n"))
	refs := twenty(b, n)
	for _, file := range story.Glob(b, n.Root, "usr/share/caasp-container-manifests/manifests/*.yaml") {
		name := strings.TrimPrefix(file, n.Root)
		h.WriteFile(name, n.ReadFile(name))
	}
	require.Equal(b, "running", h.Boot())
	h.Must("image-update-agent", "check")
	startPods(b, n, refs)
	h.Must("image-update-agent", "check")
	pid := h.PID(host.Service)
	<-time.After(atRest())
	for b.Loop() {
		used, before := cpu(b, pid), wakeups(b, pid)
		began := time.Now()
		<-time.After(length)
		minutes := time.Since(began).Minutes()
		b.ReportMetric(float64((cpu(b, pid)-used).Microseconds())/1000/minutes, "cpu-ms/min")
		sum := 0
		for thread, woken := range wakeups(b, pid) {
			fmt.Printf("thread %s: %.1f wakeups a minute\n", thread, float64(woken-before[thread])/minutes)
			sum += woken - before[thread]
		}
		b.ReportMetric(float64(sum)/minutes, "wakeups/min")
	}
	b.ReportMetric(memory(b, pid, "VmRSS"), "rss-MB")
	b.ReportMetric(memory(b, pid, "RssAnon"), "rss-anon-MB")
	b.ReportMetric(proportional(b, pid), "pss-MB")
	b.ReportMetric(0, "ns/op") // of the requested duration
}

// startPods starts the pods of twenty as kubelet does. While a pod does not run, the agent observes the node more
// often.
func startPods(b *testing.B, n *node.Node, refs []string) {
	b.Helper()
	runtime := n.CRI().Runtime
	for i, ref := range refs {
		labels := map[string]string{
			"io.kubernetes.pod.name": fmt.Sprintf("app%02d-node1", i), "io.kubernetes.pod.namespace": "kube-system",
			"io.kubernetes.pod.uid": fmt.Sprint("uid", i), "io.kubernetes.container.name": "dashboard",
		}
		pod := &cri.PodSandboxConfig{
			Metadata: &cri.PodSandboxMetadata{
				Name: labels["io.kubernetes.pod.name"], Namespace: "kube-system", Uid: labels["io.kubernetes.pod.uid"],
			},
			LogDirectory: n.Path("var/log"), Labels: labels,
			Annotations: map[string]string{"kubernetes.io/config.source": "file"},
			Linux: &cri.LinuxPodSandboxConfig{SecurityContext: &cri.LinuxSandboxSecurityContext{
				NamespaceOptions: &cri.NamespaceOption{Network: cri.NamespaceMode_NODE},
			}},
		}
		_, err := n.CRI().Pull(ref)
		require.NoError(b, err)
		sandbox, err := runtime.RunPodSandbox(b.Context(), &cri.RunPodSandboxRequest{Config: pod})
		require.NoError(b, err)
		container, err := runtime.CreateContainer(b.Context(), &cri.CreateContainerRequest{
			PodSandboxId: sandbox.GetPodSandboxId(), SandboxConfig: pod,
			Config: &cri.ContainerConfig{
				Metadata: &cri.ContainerMetadata{Name: "dashboard"}, Image: &cri.ImageSpec{Image: ref},
				Args: []string{story.Address(n.FreePort())}, Labels: labels, LogPath: labels["io.kubernetes.pod.name"] + ".log",
				Linux: &cri.LinuxContainerConfig{},
			},
		})
		require.NoError(b, err)
		_, err = runtime.StartContainer(b.Context(), &cri.StartContainerRequest{ContainerId: container.GetContainerId()})
		require.NoError(b, err)
	}
}

// wakeups returns how often each thread of a process has blocked voluntarily, and so was woken.
func wakeups(b *testing.B, pid string) map[string]int {
	b.Helper()
	all := map[string]int{}
	for _, file := range story.Glob(b, "/proc/"+pid+"/task", "*/status") {
		text, err := os.ReadFile(file)
		require.NoError(b, err)
		count := regexp.MustCompile(`\nvoluntary_ctxt_switches:\t(\d+)`).FindSubmatch(text)
		require.NotNil(b, count, "%s", text)
		thread := filepath.Base(filepath.Dir(file))
		all[thread], err = strconv.Atoi(string(count[1]))
		require.NoError(b, err)
	}
	return all
}

// proportional returns the memory of a process in MB, counting shared pages proportionally.
func proportional(b *testing.B, pid string) float64 {
	b.Helper()
	text, err := os.ReadFile("/proc/" + pid + "/smaps_rollup")
	require.NoError(b, err)
	pss := regexp.MustCompile(`\nPss: +(\d+) kB`).FindSubmatch(text)
	require.NotNil(b, pss, "%s", text)
	kb, err := strconv.ParseFloat(string(pss[1]), 64)
	require.NoError(b, err)
	return kb * 1024 / 1e6
}
