// SPDX-License-Identifier: Apache-2.0

package kubelease

import (
	"encoding/json"
	"errors"
	"time"

	"github.com/kubic-project/image-update-agent/agent/fleet"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
)

const (
	apiVersion = "coordination.k8s.io/v1"
	kind       = "Lease"
	// machineKey is the annotation with the holder's machine.
	machineKey = "image-update-agent.opensuse.org/machine"
	// microTime is the format of Kubernetes' MicroTime.
	microTime = "2006-01-02T15:04:05.000000Z07:00"
)

// object is a Lease. What the client does not know is written as it was read.
type object struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   fields `json:"metadata"`
	Spec       fields `json:"spec"`

	annotations map[string]string
}

// fields are the fields of an object.
type fields map[string]json.RawMessage

func (f fields) text(name string) (text string) {
	_ = json.Unmarshal(f[name], &text) // checked in parse
	return text
}

func (f fields) set(name string, value any) {
	f[name], _ = json.Marshal(value) // texts only
}

var (
	errNoLease = errors.New("the answer is not a Lease")
	errLeaving = errors.New("the Lease is being deleted: it locks nothing until " +
		"its finalizers have run and it exists anew")
	errForeign = errors.New("the Lease has leaseDurationSeconds: it belongs to another program; choose another name")
)

// parse reads a Lease. It must have a resourceVersion, without which an update would be unconditional.
func parse(body []byte, namespace, name string) (*object, error) {
	l := &object{}
	if json.Unmarshal(body, l) != nil || l.APIVersion != apiVersion || l.Kind != kind {
		return nil, errNoLease
	}
	if l.Spec == nil {
		l.Spec = fields{}
	}
	for _, f := range []struct {
		of   fields
		name string
	}{{l.Metadata, "namespace"}, {l.Metadata, "name"}, {l.Metadata, "resourceVersion"}, {l.Spec, "holderIdentity"}} {
		if raw, has := f.of[f.name]; has && json.Unmarshal(raw, new(string)) != nil {
			return nil, errNoLease
		}
	}
	if raw, has := l.Metadata["annotations"]; has && json.Unmarshal(raw, &l.annotations) != nil {
		return nil, errNoLease
	}
	if l.Metadata.text("namespace") != namespace || l.Metadata.text("name") != name ||
		l.Metadata.text("resourceVersion") == "" {
		return nil, errNoLease
	}
	if raw, has := l.Spec["leaseDurationSeconds"]; has && string(raw) != "null" {
		return nil, errForeign
	}
	return l, nil
}

func (l *object) holder() string  { return l.Spec.text("holderIdentity") }
func (l *object) machine() string { return l.annotations[machineKey] }

// isLeaving reports whether the Lease is being deleted: with its last finalizer it vanishes, and so does its holder.
func (l *object) isLeaving() bool {
	raw, has := l.Metadata["deletionTimestamp"]
	return has && string(raw) != "null"
}

// take makes a node the holder. The time at which it became the holder stays.
func (l *object) take(node, machine string, now time.Time) {
	if l.holder() != node || l.Spec["acquireTime"] == nil {
		l.Spec.set("acquireTime", now.UTC().Format(microTime))
	}
	l.Spec.set("holderIdentity", node)
	l.Spec.set("renewTime", now.UTC().Format(microTime))
	if l.annotations == nil {
		l.annotations = map[string]string{}
	}
	l.annotations[machineKey] = machine
	l.Metadata.set("annotations", l.annotations)
}

// free removes the holder. The time makes it a change.
func (l *object) free(now time.Time) {
	delete(l.Spec, "holderIdentity")
	delete(l.Spec, "acquireTime")
	l.Spec.set("renewTime", now.UTC().Format(microTime))
	delete(l.annotations, machineKey)
	l.Metadata.set("annotations", l.annotations)
}

// asHolder returns the holder for people.
func (l *object) asHolder() fleet.LockHolder {
	since, _ := time.Parse(time.RFC3339Nano, l.Spec.text("acquireTime")) // zero if a person wrote something else
	return fleet.LockHolder{ID: outside.Line(l.holder(), maxHolder), Since: outside.Time(since)}
}
