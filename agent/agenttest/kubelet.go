// SPDX-License-Identifier: Apache-2.0

package agenttest

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/watch"
	"github.com/kubic-project/image-update-agent/manifests"
)

// pod is a static pod as kubelet runs it.
type pod struct {
	sandbox    string
	spec       *manifests.File // the pod manifest that defined it
	containers map[string]*node.Container
	hidden     []string // containers that CRI no longer shows
}

// Sync is one sync of kubelet: it restarts changed pods, ends pods without a file, and starts containers that are not
// running.
func (n *Node) Sync() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for file, p := range n.pods {
		f, ok := n.manifests[file]
		spec, err := n.parse(f)
		if !ok || err != nil || !manifests.Equal(p.spec, spec) {
			n.end(file)
		}
	}
	for _, file := range slices.Sorted(maps.Keys(n.manifests)) {
		f := n.manifests[file]
		spec, err := n.parse(f)
		if err != nil {
			continue // kubelet logs an error, and runs nothing
		}
		if n.pods[file] == nil {
			n.pods[file] = &pod{spec: spec, sandbox: n.id("sandbox"), containers: map[string]*node.Container{}}
		}
		n.start(file, n.pods[file])
	}
}

// parse parses a pod manifest once, as every sync reads it.
func (n *Node) parse(f node.PodFile) (*manifests.File, error) {
	text := string(f.Content())
	if spec, ok := n.parsed[text]; ok {
		return spec, nil
	}
	spec, err := manifests.Parse([]byte(text))
	if err == nil {
		n.parsed[text] = spec
	}
	return spec, err
}

// SetKubelet turns kubelet on or off while others use the node.
func (n *Node) SetKubelet(on bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.Kubelet = on
}

// end kills a pod; kubelet keeps its ended containers for their logs.
func (n *Node) end(file string) {
	p := n.pods[file]
	for _, name := range slices.Sorted(maps.Keys(p.containers)) {
		c := *p.containers[name]
		if c.Running {
			c.FinishedAt = n.Now()
			n.tell(watch.RuntimeEvent{ContainerID: c.ID, Ended: true})
		}
		c.Running, c.ExitCode = false, 0
		n.dead = append(n.dead, c)
	}
	delete(n.pods, file)
}

// EndPod ends a pod without kubelet and removes it: the node has just booted.
func (n *Node) EndPod(file string) {
	n.mu.Lock()
	n.end(file)
	n.mu.Unlock()
	n.Forget()
}

// PowerOff ends all pods, before a boot.
func (n *Node) PowerOff() {
	n.mu.Lock()
	for file := range n.pods {
		n.end(file)
	}
	n.Kubelet = false
	n.mu.Unlock()
	n.Forget()
}

// Forget makes kubelet remove the ended containers of former pods.
func (n *Node) Forget() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.dead = nil
}

// start starts containers that are not running: init containers once per sandbox.
func (n *Node) start(file string, p *pod) {
	for _, kind := range []manifests.Kind{manifests.KindInit, manifests.KindContainer} {
		for _, img := range p.spec.Images {
			if img.Kind != kind || img.Document != 0 {
				continue
			}
			old := p.containers[img.Container]
			if old != nil && (old.Running || p.spec.Never || old.ExitCode == 0 && (p.spec.Once || kind == manifests.KindInit)) {
				continue
			}
			if !n.startContainer(file, p, img, old) {
				return // ErrImagePull, or an init container that failed
			}
		}
	}
}

func (n *Node) startContainer(file string, p *pod, img manifests.Image, old *node.Container) bool {
	d, ok := n.imageFor(img)
	if !ok {
		return false
	}
	c := &node.Container{
		ID: n.id("container"), Sandbox: p.sandbox, Pod: p.spec.Name + "-" + NodeName, Namespace: p.spec.Namespace,
		Name: img.Container, Running: img.Kind == manifests.KindContainer, StartedAt: n.Now(), Image: n.build(d).Config,
		Digests: []digest.Digest{d},
	}
	if old != nil {
		c.Restarts = old.Restarts + 1
	}
	if code, ends := n.ending[d]; ends {
		c.Running, c.ExitCode = false, code
	}
	p.containers[img.Container] = c
	n.tell(watch.RuntimeEvent{ContainerID: c.ID})
	if !c.Running {
		c.FinishedAt = n.Now()
		n.tell(watch.RuntimeEvent{ContainerID: c.ID, Ended: true})
	}
	n.restarts[file+"/"+img.Container]++
	return c.ExitCode == 0
}

// imageFor returns the image for a start, pulled by kubelet's pull policy.
func (n *Node) imageFor(img manifests.Image) (digest.Digest, bool) {
	ref := manifests.SplitReference(img.Reference)
	repository, err := release.NormalizeRepository(ref.Name)
	if err != nil {
		return "", false
	}
	if ref.Digest != "" { // found by name, under IfNotPresent
		d, ok := n.records[repository+"@"+ref.Digest]
		if !ok || img.PullPolicy == manifests.PullAlways {
			d = digest.Digest(ref.Digest)
			ok = n.registry.offersDigest(repository, d) || n.localRegistry.digest(repository, d) && n.holds(d)
		}
		return d, ok && !n.lost[d]
	}
	name := release.Reference{Repository: repository, Tag: ref.Tag}.Tagged() // as kubelet names it
	if d, ok := n.records[name.String()]; ok && img.PullPolicy != manifests.PullAlways {
		return d, !n.lost[d]
	}
	d, err := n.pull(name)
	return d, err == nil
}

// Containers implements node.Pods.
func (n *Node) Containers(context.Context) (out []node.Container, used []digest.Digest, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.unseen != nil {
		return nil, nil, n.unseen
	}
	digests := n.digests()
	out = slices.Clone(n.dead)
	for _, file := range slices.Sorted(maps.Keys(n.pods)) {
		p := n.pods[file]
		for _, name := range slices.Sorted(maps.Keys(p.containers)) {
			if slices.Contains(p.hidden, name) {
				continue
			}
			c := *p.containers[name]
			for _, d := range digests[c.Image] {
				if !slices.Contains(c.Digests, d) {
					c.Digests = append(slices.Clip(c.Digests), d)
				}
			}
			out = append(out, c)
		}
	}
	used = slices.Clone(n.Others)
	for _, c := range out {
		used = append(used, c.Image)
	}
	return out, used, nil
}

// digests returns the digests that CRI has for each image id: every record with that config.
func (n *Node) digests() map[digest.Digest][]digest.Digest {
	out := map[digest.Digest][]digest.Digest{}
	for _, name := range slices.Sorted(maps.Keys(n.records)) {
		if config := n.build(n.records[name]).Config; config != "" {
			out[config] = append(out[config], n.records[name])
		}
	}
	return out
}

// Lists implements node.Pods.
func (n *Node) Lists(_ context.Context, name string) (digest.Digest, bool, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	d, ok := n.records[name]
	if n.Unlisted > 0 {
		n.Unlisted--
		ok = false
	}
	if !ok || n.lost[d] {
		return "", false, nil
	}
	return n.build(d).Config, true, nil
}

// Stop implements node.Pods.
func (n *Node) Stop(_ context.Context, id string, _ time.Duration) error {
	if n.OnStop != nil {
		if err := n.OnStop(id); err != nil {
			return err
		}
	}
	n.mu.Lock()
	for _, p := range n.pods {
		for _, c := range p.containers {
			if c.ID == id {
				c.Running, c.FinishedAt = false, n.Now()
				n.tell(watch.RuntimeEvent{ContainerID: id, Ended: true})
			}
		}
	}
	n.mu.Unlock()
	n.changed()
	return nil
}

// Pull implements node.Pods.
func (n *Node) Pull(_ context.Context, ref release.Reference) (digest.Digest, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	d, err := n.pull(ref)
	if err != nil {
		return "", err
	}
	return n.build(d).Config, nil
}

// Crash makes every container of a digest end with an error at once.
func (n *Node) Crash(d digest.Digest, yes bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.ending, d)
	if yes {
		n.ending[d] = 1
	}
}

// End makes every container of a digest end at once with an exit code.
func (n *Node) End(d digest.Digest, code int32) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ending[d] = code
}

// Restart makes a container end, as in a crash; kubelet restarts it.
func (n *Node) Restart(file, container string) {
	if c, ok := n.Container(file, container); ok {
		_ = n.Stop(context.Background(), c.ID, 0)
	}
}

// RemoveContainer makes kubelet remove an ended container that it kept for its log; the pod keeps running.
func (n *Node) RemoveContainer(file, name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.pods[file].hidden = append(n.pods[file].hidden, name)
}

// manyEvents exceeds the number of events that a test causes before they are received.
const manyEvents = 1024

// Watch implements watch.RuntimeEvents.
func (n *Node) Watch(ctx context.Context, hear func(watch.RuntimeEvent)) {
	events := make(chan watch.RuntimeEvent, manyEvents)
	n.mu.Lock()
	n.hearers[events] = true
	n.mu.Unlock()
	defer func() {
		n.mu.Lock()
		delete(n.hearers, events)
		n.mu.Unlock()
	}()
	hear(watch.RuntimeEvent{})
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-events:
			hear(e)
		}
	}
}

// tell sends an event to all watchers. The caller holds the lock.
func (n *Node) tell(e watch.RuntimeEvent) {
	for events := range n.hearers {
		select {
		case events <- e:
		default:
		}
	}
}

// Tell makes the runtime send an event.
func (n *Node) Tell(e watch.RuntimeEvent) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.tell(e)
}
