// SPDX-License-Identifier: Apache-2.0

package record

import (
	"maps"
	"slices"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// BegunSet is a set whose pods restart one after another: all of them, or the restarted ones are rolled back. It is
// recorded before the first restart, and ends when all pods run the set, or none does.
type BegunSet struct {
	At   time.Time         `json:"at"`
	By   status.Actor      `json:"by,omitzero"`
	Pods map[string]SetPod `json:"pods"` // by pod manifest
}

// SetPod is a pod of a set.
type SetPod struct {
	// To are the wanted digests of the set, by place ("container velum").
	To map[string]digest.Digest `json:"to"`
	// Before are the previous good releases, by container; empty if none is known.
	Before map[string]release.Pin `json:"before,omitempty"`
}

// SetOf returns the begun set of a pod manifest; "" if there is none.
func (r *Record) SetOf(file string) string {
	for name, s := range r.Sets {
		if _, is := s.Pods[file]; is {
			return name
		}
	}
	return ""
}

// BeforeSets returns the releases that ran before the begun sets.
func (r *Record) BeforeSets() []release.Pin {
	var out []release.Pin
	for _, s := range r.Sets {
		for _, pod := range s.Pods {
			out = slices.AppendSeq(out, maps.Values(pod.Before))
		}
	}
	return out
}

// DropTarget removes a release from the rollback targets of a container.
func (r *Record) DropTarget(file, container string, target release.Pin) {
	key := GoodKey(file, container)
	g, known := r.Good[key]
	if !known {
		return
	}
	g.Before = slices.DeleteFunc(slices.Clone(g.Before), func(p release.Pin) bool { return p == target })
	r.Good.Set(key, g)
}
