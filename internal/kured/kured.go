// SPDX-License-Identifier: Apache-2.0

// Package kured reads which nodes kured reboots: those that hold its lock, in an annotation of its DaemonSet.
//
// The annotation is the one that kured's container has as --lock-annotation or KURED_LOCK_ANNOTATION, else kured's
// default. If that is not certain, or if kured has its lock in another DaemonSet (--ds-name, --ds-namespace), it is an
// error.
//
// The annotation is read as kured reads it, with one node or several (--concurrency). The lock of a node ends with the
// TTL that kured wrote into it; without one it does not end, also if kured itself has another one now (--lock-ttl). An
// annotation that kured could not read is an error. Each call sends one GET; nothing is kept between them.
package kured

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/kubic-project/image-update-agent/internal/kubeconfig"
	"github.com/kubic-project/image-update-agent/internal/outside"
)

// annotation is kured's default (--lock-annotation).
const annotation = "weave.works/kured-node-lock"

// Lock is kured's lock in a cluster.
type Lock struct {
	DaemonSet string // NAMESPACE/NAME of kured
	// Kubeconfig is the path of the kubeconfig; the absolute paths in it are below Root.
	Kubeconfig, Root string
	Version          string           // of the product, for the User-Agent
	Now              func() time.Time // nil: time.Now
}

// Nodes returns the nodes that kured reboots now. Without the DaemonSet there are none.
func (l Lock) Nodes(ctx context.Context) ([]string, error) {
	k, err := kubeconfig.Read(l.Root, l.Kubeconfig)
	if err != nil {
		return nil, l.failed("", err)
	}
	set, err := l.ask(ctx, k)
	if err != nil {
		return nil, l.failed(" at "+k.Host(), err)
	}
	name, err := annotationOf(set.Spec.Template.Spec.Containers, l.DaemonSet)
	if err != nil {
		return nil, l.failed("", err)
	}
	text, exists := set.Metadata.Annotations[name]
	if !exists {
		return nil, nil
	}
	now := time.Now
	if l.Now != nil {
		now = l.Now
	}
	nodes, err := holders(text, now())
	if err != nil {
		return nil, l.failed("", fmt.Errorf("annotation %s: %w", name, err))
	}
	return nodes, nil
}

func (l Lock) failed(at string, err error) error {
	return fmt.Errorf("lock of kured in DaemonSet %s%s: %w", l.DaemonSet, at, outside.Error(err))
}

// value is an annotation of one node, or of several (Locks).
type value struct {
	held

	MaxOwners *int   `json:"maxOwners"`
	Locks     []held `json:"locks"`
}

// held is the lock of a node.
type held struct {
	Node     string `json:"nodeID"`
	Metadata struct {
		Unschedulable bool `json:"unschedulable"`
	} `json:"metadata"`
	Created time.Time     `json:"created"`
	TTL     time.Duration `json:"TTL"`
}

func (h held) isOver(now time.Time) bool { return h.TTL > 0 && now.Sub(h.Created) >= h.TTL }

// holders returns the nodes that hold the lock. For a kured with --concurrency, a value without nodes is free; for one
// without, every value is the lock of a node.
func holders(text string, now time.Time) ([]string, error) {
	var v value
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		return nil, err
	}
	all := v.Locks
	if v.MaxOwners == nil && v.Locks == nil || v.Node != "" {
		all = append(all, v.held)
	}
	var nodes []string
	for _, h := range all {
		switch {
		case h.isOver(now):
		case len(nodes) == maxNodes:
			return append(nodes, "others"), nil
		default:
			nodes = append(nodes, outside.Line(h.Node, maxName))
		}
	}
	return nodes, nil
}

var errNoObject = errors.New("the answer is not this DaemonSet")

// daemonSet is what the agent reads of a DaemonSet.
type daemonSet struct {
	Kind     string `json:"kind"`
	Metadata struct {
		Namespace   string            `json:"namespace"`
		Name        string            `json:"name"`
		Annotations map[string]string `json:"annotations"`
	} `json:"metadata"`
	Spec struct {
		Template struct {
			Spec struct {
				Containers []container `json:"containers"`
			} `json:"spec"`
		} `json:"template"`
	} `json:"spec"`
}

// ask returns the DaemonSet; a zero one if there is none.
func (l Lock) ask(ctx context.Context, k kubeconfig.Config) (daemonSet, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	namespace, name, _ := strings.Cut(l.DaemonSet, "/")
	path := "/apis/apps/v1/namespaces/" + namespace + "/daemonsets/" + name
	body, err := k.Get(ctx, path, l.Version, maxBody)
	if refusal, is := errors.AsType[*kubeconfig.Refusal](err); is && refusal.IsMissing("daemonsets") {
		return daemonSet{}, nil
	}
	if err != nil {
		return daemonSet{}, err
	}
	var set daemonSet
	if json.Unmarshal(body, &set) != nil || set.Kind != "DaemonSet" ||
		set.Metadata.Namespace != namespace || set.Metadata.Name != name {
		return daemonSet{}, errNoObject
	}
	return set, nil
}
