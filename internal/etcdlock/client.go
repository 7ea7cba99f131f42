// SPDX-License-Identifier: Apache-2.0

// Package etcdlock is a fleet lock in a key of the control plane's etcd. It implements fleet.Locker.
//
// The value of the key names the holder, its machine and since when. Two machines with one name would be one holder:
// the lock is this node's only if name and machine agree. Without the key, or with an empty value, the lock is free;
// any other text is a holder. The lock has no time-out, and the key no lease of etcd.
//
// # Promises
//
//   - Every change is a transaction with the revision of the key that was read, so that etcd rejects it if anything
//     else has changed the key. A request that is executed late changes nothing after Lock or Unlock has returned nil.
//   - The node has the lock only if etcd has just written it: what was read is never enough.
//   - Every read is linearizable: a member without a quorum does not answer.
//   - The client sends requests only in Lock, Unlock and Read. It changes no other key.
package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/kubic-project/image-update-agent/agent/fleet"
	"github.com/kubic-project/image-update-agent/internal/wait"
)

// Key is the key in etcd. It is next to /registry, where the API server keeps the objects of the cluster.
const Key = "image-update-agent/lock"

// Ask asks an etcd. The question may be asked again at another member if it returns an error. See quorum.Control.
type Ask = func(ctx context.Context, question func(context.Context, *clientv3.Client) error) error

// Options configure a Client. All but Timeout, Patience and Now are required.
type Options struct {
	Etcd     func(context.Context) (Ask, error) // the control plane's; an error: this node does not know it
	Node     string                             // the holder: this node's name
	Machine  string                             // distinguishes machines with one name
	Timeout  time.Duration                      // of a Lock, and of each attempt of an Unlock; 0: 10 s
	Patience time.Duration                      // how long Unlock repeats itself while there is no answer; 0: 30 s
	Now      func() time.Time                   // nil: time.Now
}

// Client locks and unlocks for one node. It is safe for concurrent use.
type Client struct{ o Options }

// New returns a client. It reads and sends nothing.
func New(o Options) (*Client, error) {
	if o.Node == "" || o.Machine == "" {
		return nil, errors.New("lock in etcd: want the name of the node")
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
	return &Client{o}, nil
}

// Lock takes the lock for this node, or keeps it. After an error the node may hold it: the answer may have been lost.
// Its errors are *fleet.LockError.
func (c *Client) Lock(ctx context.Context) (fleet.LockAnswer, error) {
	own := value{Holder: c.o.Node, Machine: c.o.Machine, Since: c.o.Now().UTC()}
	retained := false
	var holder value
	err := c.change(ctx, func(v value, sent bool) (string, bool) {
		if holder = v; !v.isFree() && !c.has(v) {
			return "", false
		}
		if c.has(v) {
			retained = retained || !sent
			own.Since = v.Since
		}
		holder = own
		return own.text(), true
	})
	if err != nil {
		return fleet.LockAnswer{}, err
	}
	answer := fleet.LockAnswer{Holders: []fleet.LockHolder{holder.asHolder()}, Slots: 1, Retained: retained}
	if !c.has(holder) {
		e := &fleet.LockError{Lock: Name, Taken: true, Answer: answer}
		if holder.Holder == c.o.Node {
			e.Value = "held by another machine with the name of this node"
		}
		return answer, e
	}
	return answer, nil
}

// Name is the lock for people.
const Name = "etcd key " + Key

// Unlock releases the lock. fleet.ErrLost: this node does not hold it. The etcd may be the one that was just restarted:
// without an answer, Unlock repeats itself for some seconds.
func (c *Client) Unlock(ctx context.Context) error {
	late := c.o.Now().Add(c.o.Patience)
	released := false // a release that may have been executed
	for {
		err := c.unlock(ctx, &released)
		e, is := errors.AsType[*fleet.LockError](err)
		_, isUnknown := errors.AsType[unknownError](err)
		if !is || e.Err == nil || isUnknown || c.o.Now().After(late) {
			return err
		}
		if wait.For(ctx, pause) != nil {
			return err
		}
	}
}

func (c *Client) unlock(ctx context.Context, released *bool) error {
	lost := ""
	err := c.change(ctx, func(v value, _ bool) (string, bool) {
		switch {
		case c.has(v):
			lost, *released = "", true
		case !v.isFree():
			lost = "its holder is " + v.asHolder().ID
			return "", false
		case v.revision == 0:
			lost = "somebody deleted it"
		default:
			lost = "it has no holder"
		}
		// A free lock is written, too: this rejects a late request of this node for it.
		return "", true
	})
	if err != nil || lost == "" || *released {
		return err
	}
	return fmt.Errorf("%w: %s: %s", fleet.ErrLost, Name, lost)
}

// Read returns the holder; nil if there is none.
func (c *Client) Read(ctx context.Context) (*fleet.LockHolder, error) {
	var found value
	err := c.change(ctx, func(v value, _ bool) (string, bool) {
		found = v
		return "", false
	})
	if err != nil || found.isFree() {
		return nil, err
	}
	h := found.asHolder()
	return &h, nil
}

// has reports whether this node holds the lock.
func (c *Client) has(v value) bool { return v.Holder == c.o.Node && v.Machine == c.o.Machine }

// unknownError is an etcd that this node's pod manifests do not name.
type unknownError struct{ error }

func (e unknownError) Unwrap() error { return e.error }

// change reads the value of the key, and writes what decide returns for it, unless somebody has changed the key since:
// then it reads it again. sent tells decide that an earlier write may have been executed. Its errors are
// *fleet.LockError.
func (c *Client) change(ctx context.Context, decide func(v value, sent bool) (text string, write bool)) error {
	ctx, cancel := context.WithTimeout(ctx, c.o.Timeout)
	defer cancel()
	ask, err := c.o.Etcd(ctx)
	if err != nil {
		return &fleet.LockError{Lock: Name, Err: unknownError{err}, Unsent: true}
	}
	sent, isBusy := false, false
	err = ask(ctx, func(ctx context.Context, etcd *clientv3.Client) error {
		for range attempts {
			v, err := read(ctx, etcd)
			if err != nil {
				return err
			}
			text, write := decide(v, sent)
			if !write {
				return nil
			}
			sent = true
			done, err := etcd.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(Key), "=", v.revision)).
				Then(clientv3.OpPut(Key, text)).Commit()
			if err != nil || done.Succeeded {
				return err
			}
		}
		isBusy = true
		return nil
	})
	switch {
	case err != nil:
		return &fleet.LockError{Lock: Name, Err: err, Unsent: !sent}
	case isBusy:
		return &fleet.LockError{Lock: Name, Value: fmt.Sprintf("others changed it %d times in a row", attempts)}
	}
	return nil
}

// read reads the key.
func read(ctx context.Context, etcd *clientv3.Client) (value, error) {
	resp, err := etcd.Get(ctx, Key)
	if err != nil || len(resp.Kvs) == 0 {
		return value{}, err
	}
	v := parse(resp.Kvs[0].Value)
	v.revision = resp.Kvs[0].ModRevision
	return v, nil
}
