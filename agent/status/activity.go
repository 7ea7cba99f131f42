// SPDX-License-Identifier: Apache-2.0

package status

// Activity is the current work of the daemon, in addition to the state of the node.
type Activity string

// The activities.
const (
	ActivityNone     Activity = ""
	ActivityChecking Activity = "checking" // asking sources
	ActivityStaging  Activity = "staging"  // pulling releases
	ActivityApplying Activity = "applying" // restarting and verifying pods
)

// activities by the phase of a progress. Other phases end work, and do not say what follows.
var activities = map[string]Activity{
	PhaseAsking: ActivityChecking, PhaseConfirming: ActivityChecking,
	PhaseResolving: ActivityStaging, PhaseDownloading: ActivityStaging, PhaseUnpacking: ActivityStaging,
	PhaseChanging: ActivityApplying, PhaseReturning: ActivityApplying, PhaseWaiting: ActivityApplying,
	PhaseLocking: ActivityApplying, PhaseVerifying: ActivityApplying,
}

// Activity returns the daemon's activity; false if the progress does not show it.
func (p Progress) Activity() (Activity, bool) {
	a, ok := activities[p.Phase]
	return a, ok
}
