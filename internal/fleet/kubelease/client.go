// SPDX-License-Identifier: Apache-2.0

// Package kubelease is a fleet lock in a Lease of the cluster (coordination.k8s.io/v1). It implements fleet.Locker.
//
// The holder is the node's name in spec.holderIdentity. Two machines with one name would be one holder: an annotation
// therefore says which machine it is, and the lock is this node's only if both agree. The lock has no time-out: the
// client neither sets leaseDurationSeconds nor regards a time.
//
// # Promises
//
//   - Every change is a PUT with the resourceVersion that was read, so that the API server rejects it if anything else
//     has changed the Lease. A request that is answered late can change nothing after Lock or Unlock has returned nil.
//   - The node has the lock only if the API server has just written it: what was read is never enough.
//   - Creating the Lease grants nothing, nor does a Lease that is being deleted.
//   - A Lease with leaseDurationSeconds belongs to another program, and is not changed.
//   - The client reads the kubeconfig for each call, sends requests only in Lock, Unlock and Read, and keeps no
//     connection between them. The size and time of answers are limited; redirects are not followed.
package kubelease

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/kubic-project/image-update-agent/agent/fleet"
	"github.com/kubic-project/image-update-agent/internal/base/wait"
	"github.com/kubic-project/image-update-agent/internal/fleet/kubeconfig"
)

// Options configure a Client. All but Root, Timeout, Patience and Now are required.
type Options struct {
	Lease string // NAMESPACE/NAME
	// Kubeconfig is the path of the kubeconfig; the absolute paths in it are below Root.
	Kubeconfig, Root string
	Node             string           // the holder: this node's name
	Machine          string           // distinguishes machines with one name
	Version          string           // of the product, for the User-Agent
	Timeout          time.Duration    // of a Lock, and of each attempt of an Unlock; 0: 10 s
	Patience         time.Duration    // how long Unlock repeats itself while there is no answer; 0: 30 s
	Now              func() time.Time // nil: time.Now
}

// Client locks and unlocks for one node. It is safe for concurrent use.
type Client struct {
	o               Options
	namespace, name string
}

// New returns a client. It reads and sends nothing.
func New(o Options) (*Client, error) {
	namespace, name, ok := strings.Cut(o.Lease, "/")
	if !ok || namespace == "" || name == "" || o.Node == "" || o.Machine == "" {
		return nil, fmt.Errorf("lease %q of node %q: want NAMESPACE/NAME, and the name of the node", o.Lease, o.Node)
	}
	if o.Timeout == 0 {
		o.Timeout = timeout
	}
	if o.Patience == 0 {
		o.Patience = patience
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Client{o: o, namespace: namespace, name: name}, nil
}

// Lock takes the lock for this node, or keeps it. After an error the node may hold it: the answer may have been lost.
// Its errors are *fleet.LockError.
func (c *Client) Lock(ctx context.Context) (fleet.LockAnswer, error) {
	ctx, cancel := context.WithTimeout(ctx, c.o.Timeout)
	defer cancel()
	s, err := c.open()
	if err != nil {
		return fleet.LockAnswer{}, err
	}
	defer s.close()
	for range attempts {
		l, err := s.get(ctx)
		if isReason(err, reasonNotFound) {
			if err = s.create(ctx); err == nil || isReason(err, reasonExists) {
				continue
			}
		}
		if err != nil {
			return fleet.LockAnswer{}, err
		}
		if l.holder() != "" && !c.has(l) {
			return s.taken(ctx, l)
		}
		if l.isLeaving() {
			return fleet.LockAnswer{}, s.strange(errLeaving)
		}
		answer, err := s.take(ctx, l)
		if isReason(err, reasonConflict) {
			continue
		}
		return answer, err
	}
	return fleet.LockAnswer{}, s.busy()
}

// take writes this node into a Lease that nobody else holds. The answer must have it.
func (s *session) take(ctx context.Context, l *object) (fleet.LockAnswer, error) {
	retained := s.has(l)
	l.take(s.o.Node, s.o.Machine, s.o.Now())
	l, err := s.put(ctx, l)
	switch {
	case err != nil:
		return fleet.LockAnswer{}, err
	case l.isLeaving():
		return fleet.LockAnswer{}, s.strange(errLeaving)
	case !s.has(l):
		return fleet.LockAnswer{}, s.strange(fmt.Errorf("wrote holderIdentity %.64q instead of this node", l.holder()))
	}
	return fleet.LockAnswer{Holders: []fleet.LockHolder{l.asHolder()}, Slots: 1, Retained: retained}, nil
}

// Unlock releases the lock. fleet.ErrLost: this node does not hold it. The API server may be the one that was just
// restarted: without an answer, Unlock repeats itself for some seconds.
func (c *Client) Unlock(ctx context.Context) error {
	late := c.o.Now().Add(c.o.Patience)
	sent := false // a release that may have succeeded
	for {
		err := c.unlock(ctx, &sent)
		if !isAway(err) || c.o.Now().After(late) {
			return err
		}
		if wait.For(ctx, pause) != nil {
			return err
		}
	}
}

func (c *Client) unlock(ctx context.Context, sent *bool) error {
	ctx, cancel := context.WithTimeout(ctx, c.o.Timeout)
	defer cancel()
	s, err := c.open()
	if err != nil {
		return err
	}
	defer s.close()
	for range attempts {
		l, err := s.get(ctx)
		switch {
		case isReason(err, reasonNotFound):
			return c.lost(*sent, "somebody deleted it")
		case err != nil:
			return err
		case l.holder() != "" && !c.has(l):
			return c.lost(*sent, "its holder is "+l.holder())
		}
		held := c.has(l)
		// A free Lease is written, too: this rejects a late request of this node for it.
		l.free(c.o.Now())
		*sent = *sent || held
		_, err = s.put(ctx, l)
		switch {
		case isReason(err, reasonConflict):
		case err == nil && !held:
			return c.lost(*sent, "it has no holder")
		default:
			return err
		}
	}
	return s.busy()
}

// lost says that there is nothing to release; nil after a release that was sent.
func (c *Client) lost(sent bool, why string) error {
	if sent {
		return nil
	}
	return fmt.Errorf("%w: %s: %s", fleet.ErrLost, c.title(), why)
}

// Read returns the holder; nil if there is none, or no Lease.
func (c *Client) Read(ctx context.Context) (*fleet.LockHolder, error) {
	ctx, cancel := context.WithTimeout(ctx, c.o.Timeout)
	defer cancel()
	s, err := c.open()
	if err != nil {
		return nil, err
	}
	defer s.close()
	l, err := s.get(ctx)
	if isReason(err, reasonNotFound) || err == nil && l.holder() == "" {
		return nil, nil //nolint:nilnil // nobody
	}
	if err != nil {
		return nil, err
	}
	h := s.look(ctx, l)
	return &h, nil
}

// title is the lock for people.
func (c *Client) title() string { return kind + " " + c.o.Lease }

// has reports whether this node holds a Lease.
func (c *Client) has(l *object) bool {
	return l.holder() == c.o.Node && l.machine() == c.o.Machine
}

func (c *Client) open() (*session, error) {
	k, err := kubeconfig.Read(c.o.Root, c.o.Kubeconfig)
	if err != nil {
		return nil, &fleet.LockError{Lock: c.title(), Err: configError{err}, Unsent: true}
	}
	transport := k.Transport()
	transport.MaxIdleConnsPerHost = 1
	return &session{Client: c, config: k, transport: transport}, nil
}

// configError is a kubeconfig that cannot be used.
type configError struct{ error }

func (e configError) Unwrap() error { return e.error }

// session sends the requests of one call over one connection.
type session struct {
	*Client
	config    kubeconfig.Config
	transport *http.Transport
	// written: a PUT may have reached the API server. Nothing else takes the lock.
	written bool
}

func (s *session) close() { s.transport.CloseIdleConnections() }
