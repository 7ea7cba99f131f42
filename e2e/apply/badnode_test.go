// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
)

// Without containerd no decision is made and nothing changes.
func TestContainerdDown(t *testing.T) {
	t.Parallel()
	n := story.Started(t)
	before := story.Look(t, n)
	n.Containerd.Stop()
	r := n.Agent("run", "--once", "--output", "json")
	assert.Equal(t, 1, r.Code)
	assert.Contains(t, r.Stderr, n.Containerd.Socket)
	s := story.St(t, n)
	assert.Equal(t, status.StateFailed, s.State)
	assert.Contains(t, s.Reason, n.Containerd.Socket)
	n.Containerd.Start()
	before.Unchanged(t, n)
	s = story.Cycle(t, n, 0)
	assert.Equal(t, status.StateStaged, s.State, s.Reason)
}

// A containerd killed during a pull and restarted is waited for: the check that pulls completes.
func TestContainerdKilledInAPull(t *testing.T) {
	t.Parallel()
	for _, version := range node.Containerds() {
		t.Run("containerd "+string(version), func(t *testing.T) {
			t.Parallel()
			n := node.Start(t, node.Options{Containerd: version})
			story.Template(n, 1, n.Registry.Ref("demo/velum:4.0.0-rev1"))
			story.Rel(n, "demo/velum", "4.0.0-rev1-build1.1")
			daemon := story.StartDaemonWith(t, n, "UPDATE_POLLING_INTERVAL=0")
			asked := hangLayers(n)
			checking := n.StartAgent("check", "--output", "json")
			<-asked
			n.Containerd.Kill()
			n.Registry.Intercept(nil)
			n.Registry.Down() // ends the hanging requests
			n.Registry.Up()
			n.Containerd.Start()

			exit := checking.Wait(story.Ready)
			s := story.Parsed(t, node.Result{Stdout: story.Output(t, checking.Stdout), Exit: exit})
			assert.Equal(t, 0, exit.Code)
			story.IsCurrent(t, s)
			assert.True(t, story.ImageOf(t, s, "velum.yaml").Staged)
			assert.FileExists(t, n.Path(story.VelumYAML))
			_, leases := story.Stored(t, n)
			assert.Empty(t, leases)
			assert.Equal(t, 0, daemon.Stop().Code)
		})
	}
}

// The disk is full for one of the agent's files: the old file stays complete, no other is left next to it, and the
// reason is reported.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	n := node.Start(t, node.Options{Containerd: node.Containerd2})
	story.Template(n, 1, n.Registry.Ref("demo/velum:__TAG__"))
	n.WriteFile(story.GrainFile, "roles: [admin]\n")
	story.Rel(n, "demo/velum", "4.0.0-rev1-build1.1")
	story.Cycle(t, n, 0)
	for _, place := range []struct {
		name, dir string
		provoke   func() // makes the next cycle write there
	}{
		{"pod manifests", story.ManifestDir, func() {
			n.WriteFile(story.TemplateDir+"two.yaml", story.PodYAML("two", n.Registry.Ref("demo/velum:__TAG__")))
		}},
		{"waiting", story.WaitingDir, func() { story.Rel(n, "demo/velum", "4.0.0-rev2-build1.1") }},
		{"grains", filepath.Dir(story.GrainFile), func() { story.Rel(n, "demo/velum", "4.0.0-rev3-build1.1") }},
		{"record and status", "var/lib/image-update-agent", func() { story.Rel(n, "demo/velum", "4.0.0-rev4-build1.1") }},
		{"status", "run/image-update-agent", func() { story.Rel(n, "demo/velum", "4.0.0-rev5-build1.1") }},
	} {
		t.Run(place.name, func(t *testing.T) {
			place.provoke()
			dir := n.Path(place.dir)
			full(n, dir)
			before := listing(n, dir)
			r := n.Agent("run", "--once")
			after := listing(n, dir)
			n.Shell("umount " + dir)
			assert.Equal(t, 1, r.Code, "%s\n%s", r.Stdout, r.Stderr)
			assert.Contains(t, r.Stdout+r.Stderr, "no space left on device")
			assert.Contains(t, r.Stdout+r.Stderr, dir)
			assert.Equal(t, before, after)
			story.Cycle(t, n, 0)
		})
	}
}

// A daemon that starts on a full disk runs, reports it, and continues when there is space.
func TestDiskFullAtStart(t *testing.T) {
	t.Parallel()
	n := story.Started(t)
	const stateDir = "var/lib/image-update-agent"
	full(n, n.Path(stateDir))
	t.Cleanup(func() { n.Shell("umount " + n.Path(stateDir)) })
	daemon := story.StartDaemonWith(t, n, "UPDATE_POLLING_INTERVAL=0")
	r := n.Agent("check")
	assert.Equal(t, 1, r.Code, r.Stdout)
	s := story.St(t, n)
	assert.Equal(t, status.StateFailed, s.State)
	assert.Contains(t, s.Reason, "no space left on device")
	assert.Contains(t, s.Reason, n.Path(stateDir))
	r = n.Agent("doctor")
	assert.Equal(t, 1, r.Code)
	assert.Regexp(t, `(?m)^failed +disk: .*`+stateDir+`: 0 .*free: full: `, r.Stdout)

	n.Shell("rm " + n.Path(stateDir) + "/.fill")
	r = n.Agent("check")
	assert.Equal(t, 0, r.Code, "%s\n%s", r.Stdout, r.Stderr)
	assert.Equal(t, status.StateStaged, story.St(t, n).State)
	assert.Equal(t, 0, daemon.Stop().Code)
}

// full mounts a small full filesystem with the same files over a directory.
func full(n *node.Node, dir string) {
	n.Shell("mkdir -p " + dir + "; cp -a " + dir + " " + n.Dir + "/saved; mount -t tmpfs -o mode=755,size=64k tmpfs " + dir +
		"; cp -a " + n.Dir + "/saved/. " + dir + "; rm -r " + n.Dir + "/saved; ! dd if=/dev/zero of=" + dir + "/.fill status=none 2>&1")
}

// listing returns a text that changes if any file of the directory is touched, except the lock, which names the running
// process.
func listing(n *node.Node, dir string) string {
	return n.Shell("cd " + dir + "; find . -type f ! -name lock -exec stat -c '%n %i %A %Y %s' {} + -exec sha256sum {} +")
}

// A second daemon is refused because of the first, and so is `run --once`.
func TestTwoDaemons(t *testing.T) {
	t.Parallel()
	n := story.Started(t)
	daemon := story.StartDaemonWith(t, n, "UPDATE_POLLING_INTERVAL=0")
	before := story.Look(t, n)
	lock := n.ReadFile("var/lib/image-update-agent/lock")
	for _, args := range [][]string{{"run"}, {"run", "--once"}} {
		r := n.Agent(args...)
		assert.Equal(t, 1, r.Code)
		assert.Contains(t, r.Stderr, "locked by process "+strings.TrimSpace(lock))
		assert.Contains(t, r.Stderr, "hint: a daemon is running: use `image-update-agent check`")
	}
	before.Unchanged(t, n)
	s := story.St(t, n)
	assert.NotZero(t, s.SchemaVersion, "the first one still answers")
	assert.Equal(t, 0, daemon.Stop().Code)
	story.Cycle(t, n, 0)
}

// An unknown key, an invalid value or variable stops every verb that would use it, with its place and the nearest valid
// key.
func TestBadConfiguration(t *testing.T) {
	t.Parallel()
	n := story.Started(t)
	before := story.Look(t, n, "etc/image-update-agent")
	verbs := [][]string{{"run"}, {"run", "--once"}, {"status"}, {"plan"}, {"check"}, {"apply"}, {"config", "check"}}
	for _, bad := range []struct{ text, said string }{
		{"# ours\nintervall: 1h\n", `config.yaml:2: unknown key "intervall", did you mean "interval"?`},
		{"containerd:\n  sockets: /x\n", `config.yaml:2: unknown key "containerd.sockets", did you mean "containerd.socket"?`},
		{"interval: 1h\ninterval: 2h\n", "config.yaml:2: "},
		{"interval: soon\n", "config.yaml:1: interval: "},
		{"interval: 1h\npullPolicy: Never\n", "config.yaml:2: pullPolicy: "},
		{"interval: [\n", "config.yaml:1: "},
	} {
		n.WriteFile(story.ConfigFile, bad.text)
		for _, args := range verbs {
			r := n.Agent(args...)
			assert.Equal(t, 2, r.Code, "%v: %s", args, r.Stderr)
			said := r.Stderr
			if args[0] == "status" {
				said = r.Stdout // above the last status
			}
			assert.Contains(t, said, bad.said, "%v", args)
		}
		verbs = [][]string{{"config", "check"}} // they all read it in the same way
	}
	r := n.Agent("doctor")
	assert.Equal(t, 1, r.Code)
	assert.Contains(t, r.Stdout, "failed   configuration: ")
	n.WriteFile(story.ConfigFile, "interval: 1h\n")
	p := n.StartAgentWith([]string{"UPDATE_POLLING_INTERVAL=often"}, "run")
	assert.Equal(t, 2, p.Wait(story.Ready).Code)
	assert.Contains(t, story.Output(t, p.Stderr), "UPDATE_POLLING_INTERVAL")
	before.Unchanged(t, n, "etc/image-update-agent")
	require.NoFileExists(t, n.Path("run/image-update-agent/agent.sock"))
}
