// SPDX-License-Identifier: Apache-2.0

package status

// State is the node's state in one word.
type State string

// The states. StateKinds has what they mean, by precedence.
const (
	StateApplying  State = "applying"
	StateFailed    State = "failed"
	StateHeld      State = "held"
	StateStale     State = "stale"
	StateUnchecked State = "unchecked"
	StateStaged    State = "staged"
	StateCurrent   State = "current"
)

// StateKind is one row of the table of states, which docs/status.md and the manual page show (make tables).
type StateKind struct {
	State   State
	Meaning string // for people, in Markdown, without a full stop
	Remedy  string // what a person can do
}

// StateKinds returns the table of states, by precedence: the first state that applies is the node's.
func StateKinds() []StateKind {
	return []StateKind{
		{
			StateApplying, "a pod is being restarted, or kubelet is starting a new container",
			"wait, at most for `applyTimeout` (or a longer startup probe) and `settle`, twice with a rollback",
		},
		{
			StateFailed, "an update failed, a container does not run, a followed tag is gone, or the agent cannot read or " +
				"write what it needs",
			"do what `status` says",
		},
		{StateHeld, "updates are available but blocked by a hold", "see the remedy of the hold; often nothing"},
		{StateStale, "a source did not answer the last poll", "repair it; staged updates can still be applied"},
		{
			StateUnchecked, "the agent has not asked for an image yet, or has not run since the node booted",
			"wait ten minutes, or `image-update-agent check`",
		},
		{StateStaged, "updates are on the node and wait for approval", "`image-update-agent apply`"},
		{StateCurrent, "everything is up to date", "nothing"},
	}
}
