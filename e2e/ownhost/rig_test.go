// SPDX-License-Identifier: Apache-2.0

package ownhost

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
)

// onEveryContainerd tells a story on each version. They wait most of the time, and so go side by side on any number of
// processors.
func onEveryContainerd(t *testing.T, body func(t *testing.T, version node.Version)) {
	t.Helper()
	var versions sync.WaitGroup
	for _, version := range story.Containerds {
		versions.Go(func() {
			t.Run("containerd "+string(version), func(t *testing.T) { body(t, version) })
		})
	}
	versions.Wait()
}

// ownHostRig is a node with four static pods that follow a tag with pull policy Always, and with a daemon.
type ownHostRig struct {
	*node.Node
	own    *node.OwnHost
	daemon *node.Process
	pods   []ownHostPod
	build  int // of the last release
}

// ownHostPod is one of the pods.
type ownHostPod struct {
	name string // of the pod, the container, the repository below demo/
	port int
	runs string // the long tag that it answers
}

// ownHostConfig lets nothing but a test's own `check` ask the registry.
const ownHostConfig = "interval: 0\n"

// newOwnHostRig returns when the pods run. Containerd does not ask the own host yet.
func newOwnHostRig(t *testing.T, version node.Version) *ownHostRig {
	t.Helper()
	r := &ownHostRig{Node: node.Start(t, node.Options{Containerd: version, Kubelet: true, KubeletConfig: map[string]any{
		// A container that ends again waits ever longer by default, up to 5 minutes.
		"featureGates":     map[string]bool{"KubeletCrashLoopBackOffMax": true},
		"crashLoopBackOff": map[string]string{"maxContainerRestartPeriod": "1s"},
	}})}
	r.WriteFile(story.ConfigFile, ownHostConfig)
	for _, name := range []string{"dex", "gangway", "proxy", "velum"} {
		p := ownHostPod{name: name, port: r.FreePort()}
		text := strings.ReplaceAll(story.VelumTemplate(p.port, r.Registry.Ref("demo/velum:__TAG__")), "velum", name)
		r.WriteFile(story.TemplateDir+name+".yaml", strings.ReplaceAll(text, "dashboard", name))
		r.pods = append(r.pods, p)
	}
	for i := range r.pods {
		r.release(&r.pods[i])
		r.pods[i].runs = r.long()
	}
	r.own = r.OwnHost()
	r.startDaemon(t)
	story.Check(t, r.Node)
	r.areUp()
	story.IsCurrent(t, story.AwaitState(t, r.Node, status.StateCurrent))
	return r
}

func (r *ownHostRig) long() string { return fmt.Sprintf("4.0.0-rev1-build1.%d", r.build) }

// release publishes the next build of a pod's image, and returns its digest. All builds have the intermediate tag
// 4.0.0-rev1.
func (r *ownHostRig) release(p *ownHostPod) string {
	r.build++
	return story.Rel(r.Node, "demo/"+p.name, r.long())
}

func (r *ownHostRig) startDaemon(t *testing.T) {
	t.Helper()
	require.NoError(t, os.RemoveAll(r.Path("run/image-update-agent")))
	r.daemon = story.StartDaemonWith(t, r.Node)
}

// areUp waits until each pod answers what it ran last.
func (r *ownHostRig) areUp() {
	for _, p := range r.pods {
		r.WaitAnswer(p.port, p.runs)
	}
}

// cutPower cuts the power of the node, and boots it. The templates are those of before, so there is nothing to render.
func (r *ownHostRig) cutPower(t *testing.T) {
	t.Helper()
	r.daemon.Kill()
	r.PowerOff()
	r.Containerd.Start()
	r.Kubelet.Start()
	r.startDaemon(t)
}

// waits returns when kubelet says of a pod's container that it waits for its image, with its message, which
// names the text.
func (r *ownHostRig) waits(t *testing.T, pod, text string) (message string) {
	t.Helper()
	node.Eventually(t, pod+" waits", story.Ready, func() (err error) {
		if message, err = r.waiting(pod); err == nil && !strings.Contains(message, text) {
			err = fmt.Errorf("%q: want %q", message, text)
		}
		return err
	})
	return message
}

func (r *ownHostRig) waiting(pod string) (string, error) {
	data, err := r.Kubelet.Pods()
	if err != nil {
		return "", err
	}
	var list struct {
		Items []struct {
			Metadata struct{ Name string }
			Status   struct {
				ContainerStatuses []struct {
					State struct {
						Waiting *struct{ Reason, Message string }
					}
				}
			}
		}
	}
	if err := json.Unmarshal(data, &list); err != nil {
		return "", err
	}
	for _, p := range list.Items {
		if p.Metadata.Name != pod+"-node1" {
			continue
		}
		for _, c := range p.Status.ContainerStatuses {
			if c.State.Waiting != nil {
				return c.State.Waiting.Reason + ": " + c.State.Waiting.Message, nil
			}
		}
	}
	return "", errors.New("no container waits")
}

// enable has containerd ask the own host last for images of registries.
func enable(t *testing.T, n *node.Node, names ...string) {
	t.Helper()
	story.OwnHostVerb(t, n, 0, append([]string{"enable", "--write"}, names...)...)
}

// enableFirst has containerd ask the own host first for images of registries.
func enableFirst(t *testing.T, n *node.Node, names ...string) {
	t.Helper()
	story.OwnHostVerb(t, n, 0, append([]string{"enable", "--gate", "--write"}, names...)...)
}
