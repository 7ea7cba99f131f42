// SPDX-License-Identifier: Apache-2.0

package localregistry

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

// onEveryContainerd runs a test on each version. The tests mostly wait, and so run in parallel on any number of
// processors.
func onEveryContainerd(t *testing.T, body func(t *testing.T, version node.Version)) {
	t.Helper()
	var versions sync.WaitGroup
	for _, version := range node.Containerds() {
		versions.Go(func() {
			t.Run("containerd "+string(version), func(t *testing.T) { body(t, version) })
		})
	}
	versions.Wait()
}

// localRegistryRig is a node with a daemon and four static pods that follow a tag with pull policy Always.
type localRegistryRig struct {
	*node.Node
	own    *node.LocalRegistry
	daemon *node.Process
	pods   []localRegistryPod
	build  int // of the latest release
}

// localRegistryPod is one of the pods.
type localRegistryPod struct {
	name string // of the pod, of the container, and of the repository in demo/
	port int
	runs string // the long tag that the running container answers with
}

// localRegistryConfig disables polling: only a test's own `check` asks the registry.
const localRegistryConfig = "interval: 0\n"

// newLocalRegistryRig returns when the pods run. containerd does not ask the local registry yet.
func newLocalRegistryRig(t *testing.T, version node.Version) *localRegistryRig {
	t.Helper()
	r := &localRegistryRig{Node: node.Start(t, node.Options{Containerd: version, Kubelet: true})}
	r.WriteFile(story.ConfigFile, localRegistryConfig)
	for _, name := range []string{"dex", "gangway", "proxy", "velum"} {
		p := localRegistryPod{name: name, port: r.FreePort()}
		text := strings.ReplaceAll(story.VelumTemplate(p.port, r.Registry.Ref("demo/velum:__TAG__")), "velum", name)
		r.WriteFile(story.TemplateDir+name+".yaml", strings.ReplaceAll(text, "dashboard", name))
		r.pods = append(r.pods, p)
	}
	for i := range r.pods {
		r.release(&r.pods[i])
		r.pods[i].runs = r.long()
	}
	r.own = r.LocalRegistry()
	r.startDaemon(t)
	story.Check(t, r.Node)
	r.areUp()
	story.IsCurrent(t, story.AwaitState(t, r.Node, status.StateCurrent))
	return r
}

func (r *localRegistryRig) long() string { return fmt.Sprintf("4.0.0-rev1-build1.%d", r.build) }

// release publishes the next build of a pod's image, and returns its digest. All builds have the intermediate tag
// 4.0.0-rev1.
func (r *localRegistryRig) release(p *localRegistryPod) string {
	r.build++
	return story.Rel(r.Node, "demo/"+p.name, r.long())
}

func (r *localRegistryRig) startDaemon(t *testing.T) {
	t.Helper()
	require.NoError(t, os.RemoveAll(r.Path("run/image-update-agent")))
	r.daemon = story.StartDaemonWith(t, r.Node)
}

// areUp waits until each pod answers with its latest release.
func (r *localRegistryRig) areUp() {
	for _, p := range r.pods {
		r.WaitAnswer(p.port, p.runs)
	}
}

// cutPower cuts the node's power and boots it. It restores no pod manifests: the templates have not changed.
func (r *localRegistryRig) cutPower(t *testing.T) {
	t.Helper()
	r.daemon.Kill()
	r.PowerOff()
	r.Containerd.Start()
	r.Kubelet.Start()
	r.startDaemon(t)
}

// waits returns once kubelet reports that a pod's container waits for its image, with a message that contains text. It
// returns the message.
func (r *localRegistryRig) waits(t *testing.T, pod, text string) (message string) {
	t.Helper()
	node.Eventually(t, pod+" waits", story.Ready, func() (err error) {
		if message, err = r.waiting(pod); err == nil && !strings.Contains(message, text) {
			err = fmt.Errorf("%q: want %q", message, text)
		}
		return err
	})
	return message
}

func (r *localRegistryRig) waiting(pod string) (string, error) {
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

// enable adds the local registry as the last host for images of the registries.
func enable(t *testing.T, n *node.Node, names ...string) {
	t.Helper()
	story.LocalRegistryVerb(t, n, 0, append([]string{"enable", "--write"}, names...)...)
}

// enableFirst adds the local registry as the first host for images of the registries.
func enableFirst(t *testing.T, n *node.Node, names ...string) {
	t.Helper()
	story.LocalRegistryVerb(t, n, 0, append([]string{"enable", "--gate", "--write"}, names...)...)
}
