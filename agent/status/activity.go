// SPDX-License-Identifier: Apache-2.0

package status

// Activity is what the daemon does now, beside the state of the node.
type Activity string

// The activities.
const (
	ActivityNone     Activity = ""
	ActivityChecking Activity = "checking" // sources are asked
	ActivityStaging  Activity = "staging"  // releases are pulled
	ActivityApplying Activity = "applying" // pods are restarted and proved
)

// activities by the phase of a progress. Other phases end work, and say nothing of what follows.
var activities = map[string]Activity{
	PhaseAsking: ActivityChecking, PhaseConfirming: ActivityChecking,
	PhaseResolving: ActivityStaging, PhaseDownloading: ActivityStaging, PhaseUnpacking: ActivityStaging,
	PhaseChanging: ActivityApplying, PhaseReturning: ActivityApplying, PhaseWaiting: ActivityApplying,
	PhaseLocking: ActivityApplying, PhaseProving: ActivityApplying,
}

// Activity is what the daemon does; false: the progress does not say.
func (p Progress) Activity() (Activity, bool) {
	a, ok := activities[p.Phase]
	return a, ok
}
