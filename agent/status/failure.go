// SPDX-License-Identifier: Apache-2.0

package status

import "time"

// Failure is one reason of the state failed, with what failed. What a kind does not have is empty.
type Failure struct {
	PodManifest string `json:"podManifest"`
	Container   string `json:"container"`
	Image       string `json:"image"` // repository
	Kind        Kind   `json:"kind"`
	// From is the release that ran before, To the one that failed.
	From string `json:"from"`
	To   string `json:"to"`
	// RolledBackTo is what runs instead of To; empty: it was not rolled back.
	RolledBackTo string     `json:"rolledBackTo"`
	At           *time.Time `json:"at"` // null: not known
	Cause        ErrorKind  `json:"cause"`
	Reason       string     `json:"reason"` // for people
}

// AsFailure returns a reason of the state failed as a failure.
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
