// SPDX-License-Identifier: Apache-2.0

// Package agent runs the cycle: observe the node, ask the source, decide, run the steps, report.
//
// # One worker, one queue
//
// A Request is a piece of work: a poll by the clock, an observation after an event, or what a person asks for. The Loop
// runs one Request at a time, people's first; an urgent one interrupts the poll or staging of another, which is
// repeated afterwards. A Request runs one or more cycles. Before a cycle restarts a pod, it asks the Request whether
// the caller is still there. The results of the cycle become the outcomes for the caller, and the board publishes its
// status. The timetable says when the next poll is due.
//
// Start with request.go, loop.go and cycle.go. apply.go, rollback.go and hold.go have what people ask for, from the
// Loop's method down. Imports point down:
//
//	agent                  requests, the loop, the cycle
//	report  apply  stage   plan, results and record to status; restarts and health checks; pulls
//	watch  plan            containers that must run; decisions without I/O
//	follow  source         tags that pods follow; polls
//	record  node           the saved state; inventory, ports to the node
//	status  policy  release   the status document; rules; references and digests
//
// # Words
//
// A Release is a published build: tags, digest, time. An Offer is the answer of the source for one followed tag. A
// Refusal is a Rule against a release, a Hold a named reason not to act now. To stage is to pull, unpack and pin. To
// apply is to make a pod run the staged digest after an approval. A health check watches for a while whether the pod
// runs well. The agent rolls a failed release back: a Denial prevents another offer of it, and an Override pins the pod
// to the rollback target. To prune is to remove old releases.
//
// # Promises
//
// The agent decides by digest and shows tags. It reports a tag that was moved to an older build and does not follow it.
// It offers a release only after staging it, and does not render a pod with an unresolved image. A write that restarts
// a pod waits for approval. Pod manifests are complete at any time, and every step is idempotent: after a crash the
// next cycle starts from its observation.
package agent
