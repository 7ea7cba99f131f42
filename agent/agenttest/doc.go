// SPDX-License-Identifier: Apache-2.0

// Package agenttest is what tests of the agent stand on: a whole node in
// memory, and the promises of the ports as tests.
//
// # Fakes
//
// Registry publishes releases under their three tags and counts what it is
// asked. Node is a node: an image store, a container runtime with a small
// kubelet that restarts what stops and takes what the floating tag names, and
// the directories of pod manifests. Grain and Disk are the announcer and the
// record, OwnHost the table of the node's own host. World is all of them together, and makes agents on them: each is a
// new process on the same node.
//
// # Conformance
//
// TestSource, TestImages, TestPods, TestRuntimeEvents, TestPodFiles, TestAnnouncer,
// TestRecorder and TestOwnHost say what package agent relies on. The fakes pass them, and so
// must every adapter: a fake that is kinder than the world hides bugs. What an
// implementation cannot be brought to do (its function is nil) is not asked.
package agenttest
