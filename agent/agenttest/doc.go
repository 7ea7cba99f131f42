// SPDX-License-Identifier: Apache-2.0

// Package agenttest supports tests of the agent: a whole node in memory, and conformance tests of the ports.
//
// # Fakes
//
// Registry publishes releases under their three tags and counts its requests. Node is a node: an image store, a
// container runtime with a small kubelet that restarts containers and pulls floating tags, and the directories of pod
// manifests. Grain and Disk are the announcer and the record, LocalRegistry the table of the node's local registry.
// World combines them and creates agents: each is a new process on the same node.
//
// # Conformance
//
// TestSource, TestImages, TestPods, TestRuntimeEvents, TestPodFiles, TestAnnouncer, TestRecorder and TestLocalRegistry
// test the behavior that package agent relies on. The fakes pass them, and so must every adapter: a fake that is more
// lenient than the real implementation hides bugs. A test whose function is nil is skipped.
package agenttest
