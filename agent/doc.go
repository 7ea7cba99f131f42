// SPDX-License-Identifier: Apache-2.0

// Package agent holds the words, the ports and the one cycle of
// image-update-agent. It knows no network, no containerd and no D-Bus: what it
// needs from the world it asks for through the small interfaces in ports.go,
// and what it decides it decides in Decide, a pure function.
//
// # Words
//
// A Follow is the floating tag that a container follows. A Release is one
// published build: its tags, its digest, when it was made. A Change is what a
// release changes against what runs. A Policy has a Rule for each repository; a
// Refusal is a release that a rule keeps from being offered, a Hold a named
// reason not to act now. The Inventory is what the pod manifests ask for and
// what really runs; Offers are what the source has; a Plan is the steps that
// follow from both. To confirm is to read a new digest a second time before it
// counts; to stage is to pull, unpack and pin, when there is room; to prune is to
// remove old releases that staging brought; to render is to make the wanted
// pod manifest from a template; to apply is to make the pod run the staged
// digest; to prove is to show that it does, for a while. What does not come up is
// rolled back: a Denial keeps it from being offered again, and an Override has the
// pod manifest name what ran well before by its digest. What kubelet took by itself
// was adopted, and is proved and rolled back likewise.
//
// # Promises
//
// Everything is decided by digest and presented by tag, against what runs and
// by the rules of now: a tag that goes back is told and not followed. Nothing
// is offered before it is staged, and one unresolved image withholds its
// whole pod. A write that would restart a running pod waits for approval, and one
// that does not end well is taken back. A pod manifest is there, whole, whatever
// happens.
// Every step can be repeated, so a crash needs no repair: the next cycle
// starts from what is really there.
package agent
