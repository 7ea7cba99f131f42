// SPDX-License-Identifier: Apache-2.0

package status

import (
	"fmt"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
)

// NotAllowed is a newer tag that the configuration refuses.
type NotAllowed struct {
	Image string `json:"image" dbus:"image"` // repository
	Tag   string `json:"tag" dbus:"tag"`
	Rule  string `json:"rule" dbus:"rule"` // updates, max, allow, deny or kubeadm
	Key   string `json:"key" dbus:"key"`   // the setting that would allow it, as in "updates: minor"
}

// maxNamed limits the items in a sentence.
const maxNamed = 3

func few(names []string) string {
	if len(names) > maxNamed {
		names = append(slices.Clone(names[:maxNamed]), "and more")
	}
	return strings.Join(names, ", ")
}

// LastPart returns the last path element of a repository.
func LastPart(repository string) string { return repository[strings.LastIndex(repository, "/")+1:] }

// Announcement is the content of the salt grain for the admin's UI.
type Announcement struct {
	State      string
	Reason     string // why a pod did not come up; empty if none failed
	Updates    []AnnouncedUpdate
	NotAllowed []NotAllowed
}

// AnnouncedUpdate is one staged image that waits for approval.
type AnnouncedUpdate struct {
	Image  string        `json:"image" dbus:"image"` // repository
	Change string        `json:"change" dbus:"change"`
	From   string        `json:"from" dbus:"from"` // the running release by its best name; "" if unknown
	To     string        `json:"to" dbus:"to"`
	Digest digest.Digest `json:"digest" dbus:"digest"` // of To
}

// Sentence explains why the pod is not updated, and what ends that.
func (b RolledBack) Sentence(file string) string {
	return fmt.Sprintf("%s was rolled back to %s; %s is denied until apply --retry %s or a newer release",
		file, few(b.Runs), few(b.Denied), file)
}
