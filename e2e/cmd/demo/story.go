// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/manifests"
)

const (
	template = "usr/share/caasp-container-manifests/manifests/velum.yaml"
	velum    = "etc/kubernetes/manifests/velum.yaml"
	rendered = "var/lib/image-update-agent/rendered/velum.yaml"
	grain    = "etc/salt/grains"
)

// story is the demo, top to bottom.
func story(s *stage) {
	d := newDemo(s)
	d.start()
	d.rebuild()
	d.revision()
	d.powerCut()
	d.badRelease()
	s.step("The end: everything is taken away")
}

// demo is the node of the story.
type demo struct {
	*stage
	node   *node.Node
	port   int
	daemon *node.Process
}

func newDemo(s *stage) *demo {
	s.step("A node of its own: registry, containerd and kubelet")
	n := node.Start(s, node.Options{Containerd: node.Containerd16, Kubelet: true, Registry: node.InProcess})
	s.say("registry    %s", n.Registry.Host)
	s.say("containerd  %s", n.Containerd.Socket)
	s.say("kubelet     reads %s", n.Manifests)
	return &demo{stage: s, node: n, port: n.FreePort()}
}

func (d *demo) start() {
	d.step("The OS ships a template; the registry has demo/velum:4.0.0, 4.0.0-rev1 and 4.0.0-rev1-build1.1")
	d.publish("4.0.0-rev1-build1.1", 1)
	d.node.WriteFile(template, fmt.Sprintf(podTemplate, d.node.Registry.Ref("demo/velum"), d.port))
	d.node.WriteFile(grain, "roles:\n- admin\n")

	d.step("The daemon starts. There is no such pod yet, so writing it restarts nothing: it is written at once")
	d.startDaemon()
	d.agent("check")
	d.diff("the template, as kubelet got it", template, velum)
	d.node.WaitAnswer(d.port, "4.0.0-rev1-build1.1")
	d.answer()
}

func (d *demo) startDaemon() {
	d.daemon = d.node.StartAgent("run")
	node.Eventually(d, "the daemon's socket", time.Minute, func() error {
		_, err := os.Stat(d.node.Path("run/image-update-agent/agent.sock"))
		return err
	})
}

func (d *demo) rebuild() {
	d.step("A library is fixed: the same 4.0.0-rev1 is rebuilt, only the long tag is new")
	d.publish("4.0.0-rev1-build1.2", 2)
	d.agent("check")
	d.agent("changes", "velum")
	d.showGrain("the grain, for the admin's UI")
	d.say("nothing was restarted:")
	d.answer()

	d.step("The admin approves. The container is stopped; kubelet starts it from what is there already")
	d.node.Registry.Forget()
	d.agent("apply", "velum")
	d.node.WaitAnswer(d.port, "4.0.0-rev1-build1.2")
	d.answer()
	d.say("%d bytes of layers were fetched for it", d.node.Registry.Requests().Bytes(node.Blob))
}

func (d *demo) revision() {
	d.step("The image recipe changes: 4.0.0-rev2 appears. Now the pod manifest must change, too")
	d.publish("4.0.0-rev2-build2.1", 3)
	d.agent("check")
	d.diff("the pod manifest that waits for approval", velum, rendered)
	d.showGrain("the grain")
	d.answer()

	d.step("The admin approves")
	d.agent("apply")
	d.node.WaitAnswer(d.port, "4.0.0-rev2-build2.1")
	d.answer()
	d.agent("status")
	d.showGrain("the grain")
}

func (d *demo) badRelease() {
	d.step("A bad release: the container of 4.0.0-rev3-build3.1 ends at once")
	digest := d.node.Registry.PublishFaulty("demo/velum", "4.0.0-rev3-build3.1", node.Image{}, node.Crash)
	d.say("published 4.0.0-rev3-build3.1 (%s)", digest)
	d.agent("check")
	d.node.WriteFile("etc/image-update-agent/config.d/demo.yaml", "applyTimeout: 6s\n") // good ones may take their time
	d.node.Agent("reload")

	d.step("The admin approves it. It does not come up within applyTimeout, so the agent rolls it back and denies it")
	d.agentEnds(1, "apply")
	d.node.WaitAnswer(d.port, "4.0.0-rev2-build2.1")
	d.answer()
	d.agent("status")
}

func (d *demo) powerCut() {
	d.step("The node answers for the images that it has, in case the registry is away when it boots")
	d.node.LocalRegistry()
	d.agent("local-registry", "enable", d.node.Registry.Host, "--write")
	d.agent("check")

	d.step("The registry goes away, and then the power. The node boots")
	d.node.Registry.Down()
	d.daemon.Kill()
	d.node.PowerOff()
	d.node.Containerd.Start()
	d.node.Kubelet.Start()
	d.startDaemon()
	d.node.WaitAnswer(d.port, "4.0.0-rev2-build2.1")
	d.answer()
	d.say("the registry is away, and the pull policy is Always")
	d.node.Registry.Up()
}

func (d *demo) publish(long string, seed uint64) {
	packages := fmt.Sprintf("P:musl\nV:1.2.5-r0\no:musl\n\nP:libssl3\nV:3.1.4-r%d\no:openssl\n\n", seed)
	digest := d.node.Registry.Publish("demo/velum", long, node.Image{Layers: []node.Layer{
		{Seed: seed, Size: 8 << 20}, {File: "lib/apk/db/installed", Text: packages},
	}})
	d.say("published %s (%s)", long, digest)
}

// agent runs a command of the agent and prints its output.
func (d *demo) agent(args ...string) {
	d.agentEnds(0, args...)
}

// agentEnds runs a command of the agent that must exit with the code.
func (d *demo) agentEnds(code int, args ...string) {
	d.say("$ image-update-agent %s", strings.Join(args, " "))
	r := d.node.Agent(args...)
	d.text(r.Stderr + r.Stdout)
	if r.Code != code {
		d.Fatalf("image-update-agent %s: exit %d", strings.Join(args, " "), r.Code)
	}
}

func (d *demo) answer() {
	answer, err := node.Answer(d.port)
	if err != nil {
		d.Fatalf("the pod: %v", err)
	}
	d.say("http://127.0.0.1:%d answers %s", d.port, answer)
}

func (d *demo) diff(what, from, to string) {
	d.say("%s:", what)
	d.text(manifests.Diff(from, to, []byte(d.node.ReadFile(from)), []byte(d.node.ReadFile(to))))
}

func (d *demo) showGrain(what string) {
	d.say("%s (/%s):", what, grain)
	d.text(d.node.ReadFile(grain))
}

// text prints lines, indented, without the node's directory before paths.
func (d *demo) text(text string) {
	text = strings.ReplaceAll(text, d.node.Root+string(os.PathSeparator), "/")
	for line := range strings.Lines(strings.TrimRight(text, "\n")) {
		d.say("  | %s", strings.TrimRight(line, "\n"))
	}
}

const podTemplate = `# Velum, the dashboard.
apiVersion: v1
kind: Pod
metadata:
  name: velum
  namespace: kube-system
spec:
  hostNetwork: true
  priorityClassName: system-node-critical
  terminationGracePeriodSeconds: 5
  containers:
  - name: dashboard
    image: %s:__TAG__ # the tag comes from the registry
    args: ["127.0.0.1:%d"]
`
