// SPDX-License-Identifier: Apache-2.0

package node

import (
	"time"

	"github.com/opencontainers/go-digest"
)

// Container is a container of a static pod as CRI shows it.
type Container struct {
	ID        string // CRI's id, for Stop
	Sandbox   string // CRI's pod sandbox id
	Pod       string // pod name with the node's suffix: velum-node1
	Namespace string
	Name      string // container name in the pod manifest
	Running   bool   // false: created or exited
	StartedAt time.Time
	// FinishedAt, ExitCode, Reason and Message are of an ended container. Reason is the runtime's:
	// Completed, Error, OOMKilled, StartError, Unknown.
	FinishedAt time.Time
	ExitCode   int32
	Reason     string
	Message    string
	Restarts   uint32          // the attempt number: 0 is the first start
	Image      digest.Digest   // config digest
	Digests    []digest.Digest // of the index or manifest, as CRI has them
}

// HeldImage is one image record of containerd.
type HeldImage struct {
	Name   string        // repository:tag, repository@digest, or one of our pins
	Digest digest.Digest // the record's target
	Pin    bool          // the agent's pin
	Staged bool          // staging gave the name, and no other client has pulled it since
	// Repository is that of a pin or a staged name; empty for others.
	Repository string
	// Complete: all blobs for the node's platform are there and unpacked. Only set for pins.
	Complete bool
	Config   digest.Digest // of the node's platform; empty where the content is missing
	Origin   string        // see release.Build; empty: there is none, or the content is missing
	// MediaType and Size in bytes are of the manifest or index itself. Only set for pins.
	MediaType string
	Size      int64
	// NotImage is the media type of a record that names no image, as a pull from a login page leaves it ("text/html");
	// empty: it names one.
	NotImage string
}

// Waiting is a container that kubelet does not start, and why.
type Waiting struct {
	Namespace string
	Pod       string // with the node's suffix, as CRI has it: velum-node1
	Container string
	Reason    string // ContainerCreating, ErrImagePull, CrashLoopBackOff ...
	Message   string
}
