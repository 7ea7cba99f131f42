// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
)

// images20 is the number of images on the node of the performance figures.
const images20 = 20

// BenchmarkSteadyPoll measures the daemon while nothing changes, compared with the minimum: one HEAD request per image
// on one kept-alive connection, by a program that does nothing else. The number of requests is exact; CPU is the
// kernel's figure for each whole process.
func BenchmarkSteadyPoll(b *testing.B) {
	polls := sized(20, 2)
	n := node.Start(b, node.Options{Containerd: node.Containerd2})
	refs := twenty(b, n)
	n.WriteFile("etc/image-update-agent/config.yaml", "interval: 1s\nconfirmAfter: 0\nrequestsPerHour: 0\n")
	daemon := story.StartDaemon(b, n)
	defer daemon.Stop()
	node.Eventually(b, "first poll", story.Ready, func() error { return written(n) })
	settle(b, n)
	pid := pidOf(b, n)
	for b.Loop() {
		n.Registry.Forget()
		before := cpu(b, pid)
		node.Eventually(b, "steady polls", story.Ready, func() error {
			if got := n.Registry.Requests().Count("HEAD", node.Manifest); got < polls*images20 {
				return fmt.Errorf("%d requests", got)
			}
			return nil
		})
		used := cpu(b, pid) - before
		all := n.Registry.Requests()
		done := float64(all.Count("HEAD", node.Manifest)) / images20
		b.ReportMetric(float64(len(all))/done, "requests/poll")
		b.ReportMetric(float64(all.Bytes(node.Manifest)+all.Bytes(node.Tags))/done, "body-bytes/poll")
		b.ReportMetric(used.Seconds()*1000/done, "agent-cpu-ms/poll")
	}
	b.ReportMetric(memory(b, pid, "VmHWM"), "peak-rss-MB")
	b.ReportMetric(memory(b, pid, "VmRSS"), "rss-MB")
	floor := runFloor(b, polls, n.Registry.Host, refs)
	b.ReportMetric(floor.Seconds()*1000/float64(polls), "floor-cpu-ms/poll")
}

// atRest returns the time after which the daemon has returned its heap: a minute after its last cycle.
func atRest() time.Duration { return sized(65*time.Second, 0) }

// BenchmarkIdle measures a daemon after two checks, at once and at rest.
func BenchmarkIdle(b *testing.B) {
	n := node.Start(b, node.Options{Containerd: node.Containerd2})
	twenty(b, n)
	for b.Loop() {
		daemon := story.StartDaemon(b, n)
		pid := pidOf(b, n)
		b.ReportMetric(memory(b, pid, "VmRSS"), "rss-at-start-MB")
		r := n.Agent("check")
		require.Equal(b, 0, r.Code, r.Stderr)
		r = n.Agent("check")
		require.Equal(b, 0, r.Code, r.Stderr)
		b.ReportMetric(memory(b, pid, "VmHWM"), "peak-rss-MB")
		b.ReportMetric(memory(b, pid, "VmRSS"), "rss-after-checks-MB")
		<-time.After(atRest())
		b.ReportMetric(memory(b, pid, "VmRSS"), "rss-MB")
		b.ReportMetric(memory(b, pid, "RssAnon"), "rss-anon-MB")
		daemon.Stop()
	}
}

// BenchmarkStart measures the time from the start of the process to READY=1.
func BenchmarkStart(b *testing.B) {
	n := node.Start(b, node.Options{})
	program, socket := n.AgentProgram(), story.NotifySocket(b, n)
	var times []float64
	for b.Loop() {
		cmd := exec.CommandContext(b.Context(), program, "run", "--root", n.Root)
		cmd.Env = append(os.Environ(), "NOTIFY_SOCKET="+socket.Path)
		began := time.Now()
		require.NoError(b, cmd.Start())
		socket.Await(b, "READY=1")
		times = append(times, float64(time.Since(began).Microseconds())/1000)
		require.NoError(b, cmd.Process.Signal(syscall.SIGTERM))
		require.NoError(b, cmd.Wait())
	}
	b.ReportMetric(median(times), "start-to-ready-ms")
	b.ReportMetric(slices.Max(times), "worst-start-to-ready-ms")
}

// BenchmarkCommand measures what each command costs at its start: CPU of `version`, the peak memory of `tags parse`.
func BenchmarkCommand(b *testing.B) {
	program := node.Start(b, node.Options{}).AgentProgram()
	for b.Loop() {
		var times []float64
		for range sized(50, 2) {
			cmd := exec.CommandContext(b.Context(), program, "version")
			require.NoError(b, cmd.Run())
			times = append(times, float64((cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime()).Microseconds())/1000)
		}
		b.ReportMetric(slices.Min(times), "least-cpu-ms")
		b.ReportMetric(median(times), "cpu-ms")
		b.ReportMetric(peakOfCommand(b, program), "peak-rss-MB")
	}
}

// peakOfCommand asks the kernel while the command reads: the figure that wait(2) returns is this process's, if higher.
func peakOfCommand(tb testing.TB, program string) float64 {
	tb.Helper()
	cmd := exec.CommandContext(tb.Context(), program, "tags", "parse")
	in, err := cmd.StdinPipe()
	require.NoError(tb, err)
	require.NoError(tb, cmd.Start())
	_, err = in.Write(bytes.Repeat([]byte("\n"), 2*pipeSize)) // which it skips; the write ends while it reads
	require.NoError(tb, err)
	peak := memory(tb, strconv.Itoa(cmd.Process.Pid), "VmHWM")
	require.NoError(tb, in.Close())
	require.NoError(tb, cmd.Wait())
	return peak
}

// pipeSize is Linux's capacity of a pipe, pipe(7).
const pipeSize = 64 << 10

// twenty publishes twenty images and a template for each.
func twenty(tb testing.TB, n *node.Node) (refs []string) {
	tb.Helper()
	for i := range images20 {
		name := fmt.Sprintf("demo/app%02d", i)
		n.Registry.Publish(name, "1.0.0-rev1-build1.1", node.Image{Layers: []node.Layer{{Seed: uint64(i), Size: 1000}}})
		ref := n.Registry.Ref(name + ":1.0.0-rev1")
		n.WriteFile(fmt.Sprintf("usr/share/caasp-container-manifests/manifests/app%02d.yaml", i),
			strings.ReplaceAll(story.VelumTemplate(1, ref), "velum", fmt.Sprintf("app%02d", i)))
		refs = append(refs, ref)
	}
	return refs
}

// written checks that every pod manifest exists, so every image was found and staged.
func written(n *node.Node) error {
	files, err := filepath.Glob(n.Path("etc/kubernetes/manifests/*.yaml"))
	if err == nil && len(files) != images20 {
		err = fmt.Errorf("%d pod manifests", len(files))
	}
	return err
}

// settle waits until a poll requests only the followed tags.
func settle(tb testing.TB, n *node.Node) {
	tb.Helper()
	node.Eventually(tb, "a steady poll", story.Ready, func() error {
		all := n.Registry.Requests()
		last := all[max(0, len(all)-2*images20):]
		if heads := last.Count("HEAD", node.Manifest); heads < 2*images20 {
			return fmt.Errorf("%d HEAD requests among the last %d", heads, len(last))
		}
		return nil
	})
}

// pidOf finds the daemon by its arguments.
func pidOf(tb testing.TB, n *node.Node) string {
	tb.Helper()
	dirs, err := filepath.Glob("/proc/[0-9]*")
	require.NoError(tb, err)
	for _, dir := range dirs {
		line, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		if err == nil && bytes.Contains(line, []byte("\x00run\x00--root\x00"+n.Root+"\x00")) {
			return filepath.Base(dir)
		}
	}
	tb.Fatalf("no daemon of %s", n.Root)
	return ""
}

// cpu returns the CPU time of a process, from the scheduler's statistics of its threads (nanoseconds, see
// sched-stats.rst).
func cpu(tb testing.TB, pid string) time.Duration {
	tb.Helper()
	files, err := filepath.Glob("/proc/" + pid + "/task/*/schedstat")
	require.NoError(tb, err)
	var sum time.Duration
	for _, f := range files {
		data, err := os.ReadFile(f)
		if errors.Is(err, syscall.ESRCH) || errors.Is(err, os.ErrNotExist) {
			continue // the thread has ended
		}
		require.NoError(tb, err)
		ns, err := strconv.ParseInt(strings.Fields(string(data))[0], 10, 64)
		require.NoError(tb, err)
		sum += time.Duration(ns)
	}
	return sum
}

// memory returns a line of /proc/PID/status, in MB.
func memory(tb testing.TB, pid, name string) float64 {
	tb.Helper()
	data, err := os.ReadFile("/proc/" + pid + "/status")
	require.NoError(tb, err)
	for line := range strings.Lines(string(data)) {
		if key, rest, _ := strings.Cut(line, ":"); key == name {
			kb, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
			require.NoError(tb, err)
			return kb * 1024 / 1e6
		}
	}
	tb.Fatalf("no %s", name)
	return 0
}
