// SPDX-License-Identifier: Apache-2.0

package status

// The fields of a pod manifest that the agent changes.
const (
	EditImage      = "image"
	EditPullPolicy = "imagePullPolicy"
)

// Edit is what an apply, or a rollback, changes of one container, or volume.
type Edit struct {
	Container string `json:"container"`
	Field     string `json:"field"` // EditImage or EditPullPolicy
	From      string `json:"from"`  // of an image its release; "": nothing, or not written
	To        string `json:"to"`
}
