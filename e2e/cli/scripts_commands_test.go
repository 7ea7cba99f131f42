// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"strconv"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
	"github.com/kubic-project/image-update-agent/internal/face/bus/bustest"
)

// command is a word of the scripts.
type command struct {
	usage string
	least int // minimum number of arguments
	do    func(s *stage, not bool, args []string)
}

// scriptCommands returns the words in addition to testscript's. Waiting ones wait as long as any story.
func scriptCommands() map[string]command {
	return map[string]command{
		"publish":    {"NAME TAG [FAULT]: a release of $REPO/NAME, by its long tag", 2, (*stage).publish},
		"template":   {"NAME [FILE]: the template NAME.yaml, a pod with one container of $REPO/NAME:__TAG__, or FILE", 1, (*stage).template},
		"config":     {"[LINE...]: the configuration", 0, (*stage).config},
		"edit":       {"PATH OLD NEW: a file of the node gets other text", 3, (*stage).edit},
		"daemon":     {"start|stop|kill|reload", 1, (*stage).daemon},
		"agent":      {"[CODE] VERB...: runs to its end, which is CODE (0)", 1, (*stage).agent},
		"boot":       {"renders as the unit before kubelet does", 0, (*stage).boot},
		"begin":      {"VERB...: as agent, and goes on", 1, (*stage).begin},
		"end":        {"[CODE]: waits for what begin began", 0, (*stage).end},
		"registry":   {"stop|start|forget|lose [N]: lose is a stop after N (1) more questions for digests", 1, (*stage).registry},
		"fetched":    {"BYTES: of blobs, since `registry forget`", 1, (*stage).fetched},
		"kubelet":    {"stop|start|restart", 1, (*stage).kubelet},
		"containerd": {"start", 1, (*stage).containerd},
		"power":      {"off: the node, the registry not", 1, (*stage).power},
		"restart":    {"POD CONTAINER: kubelet starts it again, and waits for that", 2, (*stage).restart},
		"ended":      {"POD CONTAINER: waits until it does not run", 2, (*stage).stopped},
		"gone":       {"PATH: waits until there is no such file", 1, (*stage).gone},
		"runs":       {"POD CONTAINER TAG: waits until CRI says so", 3, (*stage).runs},
		"follows":    {"POD IMAGE:TAG: with pull policy Always, or its apply named the digest", 2, (*stage).follows},
		"answers":    {"POD [TEXT]: waits until its server says so; with !, until it is gone", 1, (*stage).answers},
		"note":       {"POD: what it runs, and its pod manifest", 1, (*stage).note},
		"untouched":  {"POD: since note", 1, (*stage).untouched},
		"status":     {"PATH VALUE: waits for images[velum].running.tag, say, to be VALUE, a regular expression", 2, (*stage).status},
		"grain":      {"KEY VALUE: waits for it", 2, (*stage).grain},
	}
}

func (s *stage) commands() map[string]func(*testscript.TestScript, bool, []string) {
	all := map[string]func(*testscript.TestScript, bool, []string){}
	for name, c := range scriptCommands() {
		all[name] = func(ts *testscript.TestScript, not bool, args []string) {
			s.line = ts
			defer func() { s.line = nil }()
			if len(args) < c.least {
				ts.Fatalf("usage: %s %s", name, c.usage)
			}
			c.do(s, not, args)
		}
	}
	return all
}

// until waits for a check to succeed.
func (s *stage) until(what string, check func() error) {
	node.Eventually(s, what, story.Ready, check)
}

func (s *stage) publish(_ bool, args []string) {
	repository := s.script.name + "/" + args[0]
	var seed uint64
	for _, c := range []byte(repository + args[1]) {
		seed = seed*31 + uint64(c)
	}
	installed := "P:" + args[0] + "\nV:" + args[1] + "\no:" + args[0] + "-source\n\n"
	image := node.Image{
		Layers: []node.Layer{{Seed: seed, Size: 100 << 10}, {File: "lib/apk/db/installed", Text: installed}},
		Labels: map[string]string{"org.opencontainers.image.source": "https://example.com/" + args[0]},
	}
	var digest string
	if len(args) > 2 {
		digest = s.node.Registry.PublishFaulty(repository, args[1], image, node.Fault(args[2]))
	} else {
		digest = s.node.Registry.Publish(repository, args[1], image)
	}
	s.script.digests[args[0]+":"+args[1]] = digest
	s.line.Setenv("DIGEST", digest)
}

// podText is the pod of `template NAME`, with a readiness probe at /ready.
const podText = `apiVersion: v1
kind: Pod
metadata:
  name: NAME-$SCRIPT
  namespace: kube-system
spec:
  hostNetwork: true
  priorityClassName: system-node-critical
  terminationGracePeriodSeconds: 5
  containers:
  - name: NAME
    image: $REPO/NAME:__TAG__
    args: ["127.0.0.1:$port_NAME"]
    readinessProbe:
      httpGet: {host: 127.0.0.1, port: $port_NAME, path: /ready}
      periodSeconds: 1
`

func (s *stage) template(_ bool, args []string) {
	text := strings.ReplaceAll(podText, "NAME", args[0])
	if len(args) > 1 {
		text = s.line.ReadFile(args[1])
	}
	s.node.WriteFile(story.TemplateDir+args[0]+".yaml", s.expand(text))
}

func (s *stage) config(_ bool, args []string) {
	s.node.WriteFile(story.ConfigFile, scriptConfig+strings.Join(args, "\n")+"\n")
}

func (s *stage) edit(_ bool, args []string) {
	before := s.node.ReadFile(args[0])
	if !strings.Contains(before, args[1]) {
		s.Fatalf("%s: no %q in\n%s", args[0], args[1], before)
	}
	s.node.WriteFile(args[0], strings.ReplaceAll(before, args[1], args[2]))
}

func (s *stage) agent(_ bool, args []string) {
	want := 0
	if code, err := strconv.Atoi(args[0]); err == nil {
		want, args = code, args[1:]
	}
	s.ended(s.node.StartAgent(args...), want)
}

func (s *stage) boot(bool, []string) {
	b := bustest.Start(s, "")
	bustest.Booting{System: "starting", Load: "loaded"}.Serve(s, b)
	s.ended(s.node.StartAgentWith([]string{"DBUS_SYSTEM_BUS_ADDRESS=" + b.Address}, "render"), 0)
}

func (s *stage) begin(_ bool, args []string) {
	s.script.begun = s.node.StartAgent(args...)
}

func (s *stage) end(_ bool, args []string) {
	want := 0
	if len(args) > 0 {
		var err error
		want, err = strconv.Atoi(args[0])
		s.line.Check(err)
	}
	p := s.script.begun
	s.script.begun = nil
	s.ended(p, want)
}

// ended waits for the end of a call and provides its output for `stdout` and `stderr`.
func (s *stage) ended(p *node.Process, want int) {
	code := p.Wait(story.Ready).Code
	out, err := os.ReadFile(p.Stdout)
	s.line.Check(err)
	_, _ = s.line.Stdout().Write(out)
	out, err = os.ReadFile(p.Stderr)
	s.line.Check(err)
	_, _ = s.line.Stderr().Write(out)
	if code != want {
		s.Fatalf("exit %d, want %d", code, want)
	}
}
