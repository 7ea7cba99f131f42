// SPDX-License-Identifier: Apache-2.0

package agenttest

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/watch"
	"github.com/kubic-project/image-update-agent/manifests"
)

// NodeName is what kubelet appends to the names of static pods.
const NodeName = "node1"

// Node is a node in memory: image store, container runtime with a small kubelet, and the directories. It implements
// node.Images, node.Pods and node.PodFiles. Safe for concurrent use. Kubelet acts within the call that causes it,
// unless Kubelet is false.
type Node struct {
	// Kubelet turns kubelet on; without it, a test calls Sync.
	Kubelet bool
	// Now is the node's clock.
	Now func() time.Time
	// OnStage and OnStop, if set, may fail these calls.
	OnStage func(ctx context.Context, r release.Release) error
	OnStop  func(id string) error
	// OnAside, if set, may return an error after a pod manifest was set aside.
	OnAside func(name string) error
	// Filled, if set, may end a pull in the middle.
	Filled func(r release.Release) error
	// Unlisted is the number of further queries in which CRI lists no image.
	Unlisted int
	// Others are the image ids of containers outside static pods.
	Others []digest.Digest
	unseen error

	mu        sync.Mutex
	registry  *Registry
	templates map[string]node.PodFile
	manifests map[string]node.PodFile
	waiting   map[string]node.PodFile
	aside     map[string]node.PodFile
	records   map[string]digest.Digest // image records by name, without pins
	pins      map[release.Pin]bool
	lost      map[digest.Digest]bool     // content that was deleted
	ending    map[digest.Digest]int32    // images whose process exits at once, with their exit code
	pods      map[string]*pod            // by file name
	pages     map[string]string          // media types of records that are not images
	parsed    map[string]*manifests.File // pod manifests by their text
	dead      []node.Container           // of removed pods, until kubelet removes them
	staged    map[string]bool            // records whose name was given by staging
	disk      policy.Filesystem

	prunedInUse   []string
	made          int
	fetched       int
	restarts      map[string]int // starts of containers, by "file/container"
	hearers       map[chan watch.RuntimeEvent]bool
	localRegistry *localRegistry // nil: the node has none
}

var (
	_ node.Images   = (*Node)(nil)
	_ node.Pods     = (*Node)(nil)
	_ node.PodFiles = (*Node)(nil)

	_ watch.RuntimeEvents = (*Node)(nil)
)

// NewNode returns an empty node that pulls from r.
func NewNode(r *Registry) *Node {
	return &Node{
		Kubelet: true, Now: time.Now, registry: r,
		templates: map[string]node.PodFile{}, manifests: map[string]node.PodFile{}, waiting: map[string]node.PodFile{},
		aside:   map[string]node.PodFile{},
		records: map[string]digest.Digest{}, pins: map[release.Pin]bool{}, lost: map[digest.Digest]bool{},
		ending: map[digest.Digest]int32{}, pages: map[string]string{}, parsed: map[string]*manifests.File{},
		pods: map[string]*pod{}, restarts: map[string]int{},
		hearers: map[chan watch.RuntimeEvent]bool{},
		staged:  map[string]bool{}, disk: policy.Filesystem{Path: "/var/lib/containerd", Size: 100 << 30, Free: 80 << 30},
	}
}

// PutTemplate writes a template; nil data deletes it.
func (n *Node) PutTemplate(name string, data []byte) { n.put(n.templates, name, data) }

// PutPodManifest edits kubelet's directory as a person does; nil data deletes the file.
func (n *Node) PutPodManifest(name string, data []byte) {
	n.put(n.manifests, name, data)
	n.changed()
}

// PutBroken adds a pod manifest that must not be read.
func (n *Node) PutBroken(name string, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.manifests[name] = node.PodFile{Name: name, Err: err}
}

// PutFollowed adds a pod manifest that kubelet reads and that must not be written; or, without data, one that kubelet
// ignores.
func (n *Node) PutFollowed(name string, err error, data []byte) {
	n.mu.Lock()
	n.manifests[name] = node.PodFile{Name: name, Err: err, Followed: data, PassedOver: data == nil}
	n.mu.Unlock()
	n.changed()
}

func (n *Node) put(files map[string]node.PodFile, name string, data []byte) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if data == nil {
		delete(files, name)
		return
	}
	files[name] = node.PodFile{Name: name, Data: bytes.Clone(data)}
}

// PodManifest returns a file of kubelet's directory, "" if it does not exist.
func (n *Node) PodManifest(name string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return string(n.manifests[name].Data)
}

// WaitingFile returns a rendered file that waits for approval, "" if there is none.
func (n *Node) WaitingFile(name string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return string(n.waiting[name].Data)
}

// Templates implements node.PodFiles.
func (n *Node) Templates(context.Context) ([]node.PodFile, error) { return n.list(n.templates), nil }

// PodManifests implements node.PodFiles.
func (n *Node) PodManifests(context.Context) ([]node.PodFile, error) {
	return n.list(n.manifests), nil
}

// Waiting implements node.PodFiles.
func (n *Node) Waiting(context.Context) ([]node.PodFile, error) { return n.list(n.waiting), nil }

func (n *Node) list(files map[string]node.PodFile) []node.PodFile {
	n.mu.Lock()
	defer n.mu.Unlock()
	var out []node.PodFile
	for _, name := range slices.Sorted(maps.Keys(files)) {
		f := files[name]
		f.Data = bytes.Clone(f.Data)
		out = append(out, f)
	}
	return out
}

// Write implements node.PodFiles.
func (n *Node) Write(_ context.Context, was node.PodFile, data []byte) error {
	n.mu.Lock()
	if err := n.unchanged(was); err != nil {
		n.mu.Unlock()
		return err
	}
	n.manifests[was.Name] = node.PodFile{Name: was.Name, Data: bytes.Clone(data)}
	n.mu.Unlock()
	n.changed()
	return nil
}

// Remove implements node.PodFiles.
func (n *Node) Remove(_ context.Context, was node.PodFile) error {
	n.mu.Lock()
	if err := n.unchanged(was); err != nil {
		n.mu.Unlock()
		return err
	}
	delete(n.manifests, was.Name)
	n.mu.Unlock()
	n.changed()
	return nil
}

func (n *Node) unchanged(was node.PodFile) error {
	is, ok := n.manifests[was.Name]
	if ok != (was.Data != nil) || !bytes.Equal(is.Data, was.Data) {
		return fmt.Errorf("%s: %w", was.Name, release.ErrConflict)
	}
	return nil
}

// Keep implements node.PodFiles.
func (n *Node) Keep(_ context.Context, name string, data []byte) error {
	n.put(n.waiting, name, data)
	return nil
}

func (n *Node) changed() {
	n.mu.Lock()
	on := n.Kubelet
	n.mu.Unlock()
	if on {
		n.Sync()
	}
}

// names returns the names of the image records with a digest.
func (n *Node) names(d digest.Digest) []string {
	var out []string
	for name, target := range n.records {
		if target == d {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// Blind fails every query of the runtime; nil ends it: containerd is down.
func (n *Node) Blind(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.unseen = err
}

func (n *Node) id(what string) string {
	n.made++
	return fmt.Sprintf("%s-%d", what, n.made)
}

// Container returns the container of a pod manifest in the runtime.
func (n *Node) Container(file, name string) (node.Container, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	p, ok := n.pods[file]
	if !ok || p.containers[name] == nil {
		return node.Container{}, false
	}
	return *p.containers[name], true
}

// Starts counts how often a container of a pod manifest was started.
func (n *Node) Starts(file, container string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.restarts[file+"/"+container]
}

// SetAside implements node.PodFiles.
func (n *Node) SetAside(_ context.Context, was node.PodFile) error {
	if was.Err != nil || was.Data == nil {
		return fmt.Errorf("%s: not set aside: it was not read", was.Name)
	}
	n.mu.Lock()
	if err := n.unchanged(was); err != nil {
		n.mu.Unlock()
		return err
	}
	n.aside[was.Name] = n.manifests[was.Name]
	delete(n.manifests, was.Name)
	n.mu.Unlock()
	n.changed()
	if n.OnAside != nil {
		return n.OnAside(was.Name)
	}
	return nil
}

// PutBack implements node.PodFiles.
func (n *Node) PutBack(context.Context) ([]string, error) {
	n.mu.Lock()
	var names []string
	for _, name := range slices.Sorted(maps.Keys(n.aside)) {
		if _, there := n.manifests[name]; !there {
			n.manifests[name] = n.aside[name]
			names = append(names, name)
		}
	}
	n.aside = map[string]node.PodFile{}
	n.mu.Unlock()
	if len(names) > 0 {
		n.changed()
	}
	return names, nil
}

// Aside returns the pod manifests that are set aside.
func (n *Node) Aside() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Sorted(maps.Keys(n.aside))
}

// SandboxReady implements node.Pods.
func (n *Node) SandboxReady(_ context.Context, id string) (bool, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.unseen != nil {
		return false, n.unseen
	}
	for _, p := range n.pods {
		if p.sandbox == id {
			return true, nil
		}
	}
	return false, nil
}

// Address implements node.Pods.
func (n *Node) Address(context.Context, string) (string, error) { return "192.0.2.1", nil }

// Clear implements node.Pods.
func (n *Node) Clear(_ context.Context, id string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.dead = slices.DeleteFunc(n.dead, func(c node.Container) bool { return c.Sandbox == id })
	return nil
}
