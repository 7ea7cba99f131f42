// SPDX-License-Identifier: Apache-2.0

package status

import "time"

// Failure is one reason of the state failed, with its object. Fields that a kind does not have are empty.
type Failure struct {
	PodManifest string `json:"podManifest" dbus:"podManifest"`
	Container   string `json:"container" dbus:"container"`
	Image       string `json:"image" dbus:"image"` // repository
	Kind        Kind   `json:"kind" dbus:"kind"`
	// From is the previous release, To the one that failed.
	From string `json:"from" dbus:"from"`
	To   string `json:"to" dbus:"to"`
	// RolledBackTo is the release that runs instead of To; empty if it was not rolled back.
	RolledBackTo string     `json:"rolledBackTo" dbus:"rolledBackTo"`
	At           *time.Time `json:"at" dbus:"at"` // null if unknown
	Cause        ErrorKind  `json:"cause" dbus:"cause"`
	Reason       string     `json:"reason" dbus:"reason"` // for people
}

// AsFailure converts a reason of the state failed to a failure.
func (r Reason) AsFailure() Failure {
	f := Failure{
		PodManifest: r.PodManifest, Container: r.Container, Image: r.Image, Kind: r.Kind, To: r.Tag, Cause: r.ErrorKind,
		Reason: r.Text,
	}
	if !r.Since.IsZero() {
		at := r.Since.UTC()
		f.At = &at
	}
	return f
}
