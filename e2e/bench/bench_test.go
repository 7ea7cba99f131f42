// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
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

// atRest returns the time after which the daemon has returned its heap: a minute after its last cycle.
func atRest() time.Duration { return 65 * time.Second }

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
