// SPDX-License-Identifier: Apache-2.0

package status

import (
	"fmt"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
)

// NotAllowed is something newer that the configuration keeps from being offered.
type NotAllowed struct {
	Image string `json:"image"` // repository
	Tag   string `json:"tag"`
	Rule  string `json:"rule"` // updates, max, allow, deny or kubeadm
	Key   string `json:"key"`  // what would allow it there, as in "updates: minor"
}

// RebuildsOnly is a followed tag that is not understood, so that nothing can be
// newer than it: it is only watched for another digest.
type RebuildsOnly struct {
	Tag string `json:"tag"`
	// Dialect is the `dialect` that reads the tag; empty: none does.
	Dialect string `json:"dialect,omitempty"`
	// Follow is the part of the tag that is understood, to be written under `follow`
	// where the repository has it; empty: there is none.
	Follow string `json:"follow,omitempty"`
}

// maxNamed bounds what one sentence names.
const maxNamed = 3

func few(names []string) string {
	if len(names) > maxNamed {
		names = append(slices.Clone(names[:maxNamed]), "and more")
	}
	return strings.Join(names, ", ")
}

func LastPart(repository string) string { return repository[strings.LastIndex(repository, "/")+1:] }

// Announcement is what the admin's UI is told.
type Announcement struct {
	State   string
	Reason  string // why a pod did not come up; empty: none has failed
	Updates []AnnouncedUpdate
	// NotAllowed is what is newer, and what the configuration does not allow.
	NotAllowed []NotAllowed
}

// AnnouncedUpdate is one staged image that waits for approval.
type AnnouncedUpdate struct {
	Image  string        `json:"image"` // repository
	Change string        `json:"change"`
	From   string        `json:"from"` // what runs, by its best name; "" where nothing is known to
	To     string        `json:"to"`
	Digest digest.Digest `json:"digest"` // of To
}

// Sentence says why nothing newer is offered, and how to go forward.
func (b RolledBack) Sentence(file string) string {
	return fmt.Sprintf("%s was rolled back to %s and %s is denied, until apply --retry %s or a newer release",
		file, few(b.Runs), few(b.Left), file)
}
