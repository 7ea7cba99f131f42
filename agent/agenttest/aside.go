// SPDX-License-Identifier: Apache-2.0

package agenttest

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/kubic-project/image-update-agent/agent/node"
)

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
