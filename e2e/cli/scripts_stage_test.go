// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
)

// stage is a node on which scripts run. It is also the node's TB: an error there fails the current line.
type stage struct {
	*testing.T // of the directory
	node       *node.Node
	cri        *node.CRI
	line       *testscript.TestScript // whose line is running; nil: none
	script     script
}

// script is the state of one script.
type script struct {
	name    string
	daemon  *node.Process     // nil: none
	begun   *node.Process     // from `begin` to `end`
	digests map[string]string // of published images, by velum:4.0.0-rev1-build1.1
	ports   map[string]int    // by pod
	noted   map[string]string // by pod: see `note`
}

func newStage(t *testing.T) *stage {
	t.Helper()
	s := &stage{T: t}
	s.node = node.Start(s, node.Options{Containerd: node.Containerd2, Kubelet: true})
	s.cri = s.node.CRI()
	s.node.AgentProgram()
	return s
}

// Fatalf ends the current script with its line.
func (s *stage) Fatalf(format string, args ...any) {
	if s.line != nil {
		s.line.Fatalf(format, args...)
	}
	s.T.Fatalf(format, args...)
}

// Failed is false once there are scripts: each reports its own failure.
func (s *stage) Failed() bool { return s.node == nil && s.T.Failed() }

// Context returns the directory's context.
func (s *stage) Context() context.Context { return s.T.Context() }

// scriptConfig is the configuration of every script, before its own lines: polls happen only on request.
const scriptConfig = "interval: 0\n"

// setUp sets the variables of a script, and empties the node at its end for the next one.
func (s *stage) setUp(env *testscript.Env) error {
	name := strings.TrimPrefix(filepath.Base(env.WorkDir), "script-")
	s.script = script{
		name: name, digests: map[string]string{}, ports: map[string]int{}, noted: map[string]string{},
	}
	s.node.WriteFile(story.ConfigFile, scriptConfig)
	env.Vars = append(env.Vars, "SCRIPT="+name, "REPO="+s.node.Registry.Ref(name), "NODE="+s.node.Root,
		"MANIFESTS="+s.node.Manifests, "TEMPLATES="+s.node.Path(story.TemplateDir), "GRAINS="+s.node.Path(story.GrainFile),
		"STATE="+s.node.Path("var/lib/image-update-agent"), "LATER="+time.Now().UTC().Add(6*time.Hour).Format("15:04"), // opening time
	)
	env.Defer(s.tearDown)
	return nil
}

func (s *stage) tearDown() {
	for _, p := range []*node.Process{s.script.begun, s.script.daemon} {
		if p != nil {
			p.Kill()
		}
	}
	s.script.begun, s.script.daemon = nil, nil
	s.node.Registry.Intercept(nil)
	s.node.Registry.Up()
	for _, dir := range []string{
		"etc/kubernetes/manifests", story.TemplateDir, "etc/salt", "etc/image-update-agent", "var/lib/image-update-agent",
		"run/image-update-agent", "run/systemd",
	} {
		if err := s.empty(s.node.Path(dir)); err != nil {
			s.Errorf("%s: %v", s.script.name, err)
		}
	}
	if err := s.unpin(); err != nil {
		s.Errorf("%s: pins: %v", s.script.name, err)
	}
}

// unpin removes the agent's pins: without its record, they would be those of a node that has lost it.
func (s *stage) unpin() error {
	client, err := containerd.New(s.node.Containerd.Socket, containerd.WithDefaultNamespace("k8s.io"))
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	all, err := client.ImageService().List(s.Context())
	for _, image := range all {
		if err == nil && strings.HasPrefix(image.Name, story.PinHost) {
			err = client.ImageService().Delete(s.Context(), image.Name)
		}
	}
	return err
}

// empty removes a directory's content, but keeps the directory, because kubelet watches it.
func (s *stage) empty(dir string) error {
	entries, err := os.ReadDir(dir)
	if os.IsNotExist(err) {
		return nil
	}
	for _, entry := range entries {
		if err == nil {
			err = os.RemoveAll(filepath.Join(dir, entry.Name()))
		}
	}
	return err
}

// port returns the port of a pod's server.
func (s *stage) port(pod string) int {
	if s.script.ports[pod] == 0 {
		s.script.ports[pod] = s.node.FreePort()
	}
	return s.script.ports[pod]
}

// expand replaces the names in a script's file: $REPO, $SCRIPT, and $port_NAME for a free port.
func (s *stage) expand(text string) string {
	return os.Expand(text, func(name string) string {
		if pod, ok := strings.CutPrefix(name, "port_"); ok {
			return fmt.Sprint(s.port(pod))
		}
		return s.line.Getenv(name)
	})
}

// explain prints the state of a node after a failed script.
func (s *stage) explain(t *testing.T) {
	t.Helper()
	s.line = nil
	if state, err := s.state(); err == nil {
		t.Logf("status: %s", state.text)
	} else {
		t.Logf("status: %v", err)
	}
	logs := []string{s.node.Kubelet.Stderr}
	if s.script.daemon != nil {
		logs = append(logs, s.script.daemon.Stderr)
	}
	for _, log := range logs {
		text, err := os.ReadFile(log)
		if err != nil {
			t.Log(err)
			continue
		}
		lines := strings.Split(strings.TrimSpace(string(text)), "\n")
		t.Logf("%s:\n%s", log, strings.Join(lines[max(0, len(lines)-60):], "\n"))
	}
	entries, err := os.ReadDir(s.node.Manifests)
	t.Log("pod manifests:", entries, err)
}
