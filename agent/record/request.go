// SPDX-License-Identifier: Apache-2.0

package record

import (
	"maps"
	"slices"
)

// Request is a person's rollback that has not begun: nothing is denied and the pod is untouched. If it is held, it is
// over, so that the pod does not restart hours later.
type Request struct {
	Denies   map[string]Denial `json:"denies,omitempty"`   // the releases that the pod leaves, by "repository@digest"
	Together []string          `json:"together,omitempty"` // the pod manifests that are rolled back with it
	Replaces *Override         `json:"replaces,omitempty"` // the override before the request; nil: none
}

// RequestRollback records a person's rollback of a pod. A pending rollback that has begun, or that follows a failure,
// is completed as the person says; it cannot end without it.
func (r *Record) RequestRollback(file string, o Override, q Request) {
	before, is := r.Overrides[file]
	switch {
	case is && before.Pending && before.Request != nil:
		q.Replaces = before.Request.Replaces
	case is && !before.Pending:
		q.Replaces = &before
	}
	o.Request = &q
	r.Overrides.Set(file, o)
	if is && before.Pending && before.Request == nil {
		r.BeginRollback(file)
	}
}

// BeginRollback denies what the requested rollback of a pod replaces, and that of the pods that return with it: once
// one has begun, all of them return. It ends their approvals.
func (r *Record) BeginRollback(file string) {
	r.eachRequested(file, func(file string, o Override) {
		for key, d := range o.Request.Denies {
			r.Denied.Set(key, d)
		}
		o.Request = nil
		r.Approved.Delete(file)
		r.Overrides.Set(file, o)
	})
}

// EndRequest ends the requested rollback of a pod that has not begun, and those of the pods that would return with it.
func (r *Record) EndRequest(file string) {
	r.eachRequested(file, func(file string, o Override) {
		if r.Overrides.Delete(file); o.Request.Replaces != nil {
			r.Overrides.Set(file, *o.Request.Replaces)
		}
	})
}

// Hold records a person's hold. As it voids approvals, it ends the requested rollbacks of its images.
func (r *Record) Hold(repository string, h PersonHold) {
	r.Holds.Set(repository, h)
	for _, file := range slices.Sorted(maps.Keys(r.Overrides)) {
		for _, at := range r.Overrides[file].Images {
			if repository == AllImages || repository == at.Repository {
				r.EndRequest(file)
			}
		}
	}
}

// eachRequested calls do for the requested rollback of a pod and those that return with it.
func (r *Record) eachRequested(file string, do func(file string, o Override)) {
	q := r.Overrides[file].Request
	if q == nil {
		return
	}
	for _, file := range append(slices.Clone(q.Together), file) {
		if o := r.Overrides[file]; o.Request != nil {
			do(file, o)
		}
	}
}
