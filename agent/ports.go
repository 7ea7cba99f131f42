// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/opencontainers/go-digest"
)

// ErrNotFound: the source answered, and it has no such tag, digest or
// repository. On the very tag a pod follows it is an alarm.
var ErrNotFound = errors.New("not found")

// ErrPlatform: the image exists, but not for this node's platform.
var ErrPlatform = errors.New("not for this platform")

// ErrConflict: somebody else changed a file between our reading and writing
// it. The next cycle plans anew.
var ErrConflict = errors.New("changed by somebody else")

// ErrHeld: writing waits, for a reason that the error names.
var ErrHeld = errors.New("held")

// ErrNoSpace: the disk was full in the middle of a pull. What the pull had
// brought is gone again.
var ErrNoSpace = errors.New("no space left")

// SourceError is an answer of a source that is no answer: which host, which
// code. Adapters wrap it so that status can say why nothing happens.
type SourceError struct {
	Repository string
	Host       string // the host asked last; empty where none was reached
	Mirror     bool
	Status     int       // HTTP status, 0 where there was none
	RetryAt    time.Time // zero, or when the host wants to be asked again
	// Unasked: no request was made, as the host asked to be left alone, has just
	// failed others, or the budget is spent. Err says which.
	Unasked bool
	Cause   Cause // Err in one word; empty: CauseOther
	Err     error
}

// Error names side, host and cause, as in
// "registry.suse.com/caasp/v4/velum: mirror m1:5000: 503 Service Unavailable".
func (e *SourceError) Error() string { return e.Repository + ": " + e.Answer() }

// Answer is Error without the repository: what the host said.
func (e *SourceError) Answer() string {
	side := "upstream"
	if e.Mirror {
		side = "mirror"
	}
	if e.Host == "" {
		return e.Err.Error()
	}
	return fmt.Sprintf("%s %s: %v", side, e.Host, e.Err)
}

// Unwrap gives the cause.
func (e *SourceError) Unwrap() error { return e.Err }

// Source is where releases are learnt.
type Source interface {
	// Resolve asks what a tag names now: one HEAD request where the host allows
	// it. A missing tag is ErrNotFound.
	Resolve(ctx context.Context, ref Reference) (Resolved, error)
	// Tags lists the tags of a repository, unsorted, bounded in number.
	Tags(ctx context.Context, repository string) ([]string, error)
	// Describe fetches what a digest is, for the node's platform: ErrPlatform
	// where there is none, ErrNotFound where the digest has vanished.
	Describe(ctx context.Context, repository string, d digest.Digest) (Build, error)
}

// Pacer is how fast the hosts may be asked: what must survive a restart, so
// that one never becomes a way around it.
type Pacer interface {
	// Pace is how it stands now.
	Pace() Pace
	// Resume takes up what was kept. Waits that are there already and later stay.
	Resume(p Pace)
}

// Pace is what hosts and the budget of requests leave for later.
type Pace struct {
	// Waits are the hosts that asked to be left alone (429 or 503 with
	// Retry-After), by host[:port].
	Waits map[string]Wait `json:"waits,omitempty"`
	// Budget is what is left to ask with.
	Budget Budget `json:"budget,omitzero"`
}

// Wait is a host's wish to be left alone.
type Wait struct {
	Until  time.Time `json:"until"`
	Status int       `json:"status"` // the HTTP status that it came with
}

// Budget bounds the requests of this node to all registries. It refills evenly
// over the hour.
type Budget struct {
	PerHour int       `json:"perHour"` // 0: there is none
	Left    int       `json:"left"`    // requests, at the time At
	At      time.Time `json:"at,omitzero"`
}

// Images is the node's image store.
type Images interface {
	// Held lists the image records of the namespace.
	Held(ctx context.Context) ([]HeldImage, error)
	// Stage pulls a release by digest for the node's platform, unpacks it, names
	// it by its long tag (by its digest where it has none) and pins it. What is
	// there already is not fetched again. Safe for concurrent use, for different
	// releases. ErrNoSpace where the disk was full.
	Stage(ctx context.Context, r Release, t Terms) error
	// Pins replaces the set of our pins: a pin for each of want that is held,
	// none for any other. Pins that want keeps are not touched.
	Pins(ctx context.Context, want []Pin) error
	// Prune removes image records, each only while it still names the digest that
	// was seen. What no other record and no container needs goes with them.
	Prune(ctx context.Context, gone []HeldImage) error
	// Name gives a digest that the node holds complete the name repository@digest,
	// by which CRI finds it without a registry; else ErrNotFound.
	Name(ctx context.Context, p Pin) error
}

// Terms are what a staging has to keep to. The zero value has none.
type Terms struct {
	// Progress hears how far it is; nil: nobody does. It is called from one
	// goroutine at a time.
	Progress func(Progress)
	// Room is asked when it is known what a pull would bring and before a layer is
	// fetched; its error ends the staging. nil: there is always room.
	Room func(ctx context.Context, n Need) error
}

// Need is what a pull would bring that is not on the node yet, in bytes.
// Unpacked is an estimate: no manifest tells it.
type Need struct {
	Compressed int64 `json:"compressed"`
	Unpacked   int64 `json:"unpacked"`
}

// Filesystem is where the node's images are, and how full it is, in bytes.
type Filesystem struct {
	Path string `json:"path"`
	Size int64  `json:"size"`
	Free int64  `json:"free"` // as kubelet counts it: without what is reserved for root
}

// Pin is a digest of a repository that must not be garbage-collected.
type Pin struct {
	Repository string        `json:"repository"`
	Digest     digest.Digest `json:"digest"`
}

// Pods is the node's container runtime as kubelet uses it.
type Pods interface {
	// Containers lists the containers of static pods, the newest attempt of each,
	// and the image ids (config digests) that any container of the node uses,
	// those that have ended and those of other pods included.
	Containers(ctx context.Context) (static []Container, used []digest.Digest, err error)
	// Lists reports whether CRI shows an image of that name, and its image id
	// (config digest): the proof that kubelet will find what was staged.
	Lists(ctx context.Context, name string) (digest.Digest, bool, error)
	// Filesystem is where the runtime keeps its images.
	Filesystem(ctx context.Context) (Filesystem, error)
	// Stop ends a container and removes it, so that kubelet starts it anew, and at
	// once: one that it finds ended it lets wait, ever longer. The container has the
	// grace to end by itself.
	Stop(ctx context.Context, containerID string, grace time.Duration) error
	// Clear removes the containers of a sandbox that is down, for the same reason.
	Clear(ctx context.Context, sandboxID string) error
	// SandboxReady reports whether a pod's sandbox is up. One that is not there is
	// not.
	SandboxReady(ctx context.Context, sandboxID string) (bool, error)
	// Address is the IP of a sandbox; empty where it has none of its own.
	Address(ctx context.Context, sandboxID string) (string, error)
	// Pull lets CRI pull a reference, as kubelet would, and returns the image id.
	Pull(ctx context.Context, ref Reference) (digest.Digest, error)
}

// RuntimeEvents tells when containers start and end. That is a reason to observe the
// node and nothing else.
type RuntimeEvents interface {
	// Watch calls hear until ctx ends, from one goroutine. Of a runtime that is away
	// it hears again when that is back.
	Watch(ctx context.Context, hear func(RuntimeEvent))
}

// RuntimeEvent is a container that was started or has ended. The zero value: events
// may have been missed.
type RuntimeEvent struct {
	ContainerID string
	Ended       bool
}

// PodFiles are the directories of pod manifests on the node.
type PodFiles interface {
	// Templates lists what the packages ship.
	Templates(ctx context.Context) ([]PodFile, error)
	// PodManifests lists kubelet's directory.
	PodManifests(ctx context.Context) ([]PodFile, error)
	// Waiting lists the rendered files that wait for approval.
	Waiting(ctx context.Context) ([]PodFile, error)
	// Write replaces a file of kubelet's directory with data if it still is what
	// was read (was.Data nil: it does not exist yet); else ErrConflict.
	Write(ctx context.Context, was PodFile, data []byte) error
	// Remove deletes a file of kubelet's directory if it still is what was read.
	Remove(ctx context.Context, was PodFile) error
	// Keep stores a rendered file until it is approved; nil data drops it.
	Keep(ctx context.Context, name string, data []byte) error
	// SetAside takes a file out of kubelet's sight if it still is what was read,
	// else ErrConflict, until it is written anew or put back.
	SetAside(ctx context.Context, was PodFile) error
	// PutBack ends every setting aside: what was not written anew is where it was
	// again, and named.
	PutBack(ctx context.Context) (names []string, err error)
}

// Inhibitor delays a shutdown of the node.
type Inhibitor interface {
	// Inhibit delays it until release is called, as long as the node allows.
	Inhibit(ctx context.Context, why string) (release func(), err error)
}

// Announcer tells the admin's UI.
type Announcer interface {
	// Announce sets the grain, writing only on change. ErrHeld while another
	// update owns the node.
	Announce(ctx context.Context, a Announcement) error
	// Busy names the grain by which a foreign operation owns the node now, as in
	// update_in_progress; empty for none.
	Busy(ctx context.Context) (grain string, err error)
}

// Preconditions are what the rest of the node has against restarting a pod now.
type Preconditions interface {
	// Holds lists it; none: nothing. What cannot be found out is itself a hold,
	// unless the node has no such thing.
	Holds(ctx context.Context) []Hold
}

// Announcement is what the admin's UI is told.
type Announcement struct {
	State   string
	Reason  string // why a pod did not come up; empty: none has failed
	Updates []AnnouncedUpdate
	// NotAllowed is what is newer, and what the configuration does not allow.
	NotAllowed []NotAllowed
}

// AnnouncedUpdate is one staged image that waits for approval.
type AnnouncedUpdate struct {
	Image  string        `json:"image"` // repository
	Change string        `json:"change"`
	From   string        `json:"from"` // what runs, by its best name; "" where nothing is known to
	To     string        `json:"to"`
	Digest digest.Digest `json:"digest"` // of To
}

// Recorder keeps what cannot be observed again.
type Recorder interface {
	// Load reads the record; an absent one is an empty record.
	Load(ctx context.Context) (Record, error)
	// Save writes it atomically.
	Save(ctx context.Context, r Record) error
	// Publish writes the status for readers that cannot reach the daemon.
	Publish(ctx context.Context, s Status) error
}
