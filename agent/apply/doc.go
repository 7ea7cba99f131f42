// SPDX-License-Identifier: Apache-2.0

// Package apply makes pods run the releases that a step of a plan names, and runs their health checks. It decides
// nothing: a failed step leaves the node as it was or records a pending rollback, and reports both in its Result.
//
// A rolled back pod must run another digest than its tag names, perhaps without a registry. So the override names
// repository:tag@digest with IfNotPresent, and containerd gets a record repository@digest first. Why a lost registry is
// answered by an override of the staged digest: under Always kubelet retries ever later, and after an outage of 45 s a
// pod was down for 87.
package apply
