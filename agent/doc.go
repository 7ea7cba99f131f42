// SPDX-License-Identifier: Apache-2.0

// Package agent runs the cycle: observe the node, ask the source, decide, run the steps,
// report. Loop schedules cycles and people's requests. Imports point down:
//
//	agent                  the cycle, the loop, requests
//	report  apply  stage   status document; restarts and proofs; pulls
//	watch  plan            containers that must run; decisions, pure
//	follow  source         tags that pods follow; polls
//	record  node           what is saved; inventory, ports towards the node
//	status  policy  release   the status document; rules; references and digests
//
// # Words
//
// A Release is a published build: tags, digest, time. An Offer is the answer of the source
// for one followed tag. A Refusal is a Rule against a release, a Hold a named reason not to
// act now. To stage is to pull, unpack and pin, to apply is to make a pod run the staged
// digest after its approval, to prove is to check for a while that it runs well. A release
// that fails is rolled back: a Denial keeps it from being offered again, an Override pins
// the pod to the rollback target. To prune is to remove old releases.
//
// # Promises
//
// The agent decides by digest and shows tags. A tag that was moved to an older build is
// reported and not followed. Nothing is offered before it is staged, and one unresolved
// image withholds its whole pod. A write that restarts a pod waits for approval. Pod
// manifests are whole at any time, and every step can be repeated: after a crash the next
// cycle starts from what it observes.
package agent
