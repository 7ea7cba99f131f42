// SPDX-License-Identifier: Apache-2.0

package ownhost

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/release"
)

// Keeper keeps the table up to date, and knows what the own host answers by it. The nil Keeper
// has no own host.
type Keeper struct {
	Store Store
	Hosts Hosts
	// Load reads the table of the last save, also of an earlier process; nil: there is none.
	Load func() (Table, error)
	// Memory knows for which registries the own host was enabled; nil: it is not known.
	Memory Memory
	// Journal reads what the own host has answered; nil: it is not known.
	Journal func() (Journal, error)
	// Ask asks the own host as containerd does; the error says why it does not answer what the
	// entry says. nil: it is taken to answer.
	Ask func(ctx context.Context, e Entry) error

	table   Table // the saved one
	omitted []Omitted
	loaded  bool
	err     error // of the last save
	down    error // of the last question
	asked   time.Time
}

// Each observation of the node probes, and a host that hangs delays it.
const (
	probeEvery = 10 * time.Second
	probeFor   = 2 * time.Second
	// probeNowFor is as long as systemd lets a process of the own host run.
	probeNowFor = 5 * time.Second
)

// Keep makes the table and saves it, even after cancellation. It sets Last and IsPrivate of f. If it
// fails, the own host answers by the table before.
func (k *Keeper) Keep(ctx context.Context, f Facts) error {
	if k == nil {
		return nil
	}
	last := context.WithoutCancel(ctx)
	k.load()
	f.Last, f.IsPrivate = k.table, k.Hosts.Private
	next, omitted := Make(f)
	if k.err == nil && k.loaded && slices.Equal(next.Entries, k.table.Entries) {
		k.omitted = omitted
		return nil
	}
	if k.err = k.Store.Save(last, next); k.err != nil {
		k.err = fmt.Errorf("table of the own host: %w", k.err)
		return k.err
	}
	k.table, k.omitted, k.loaded = next, omitted, true
	return nil
}

// Probe is ProbeNow, at most once in 10 seconds and for 2 seconds.
func (k *Keeper) Probe(ctx context.Context) {
	if k != nil && (k.asked.IsZero() || time.Since(k.asked) >= probeEvery) {
		k.probe(ctx, probeFor)
	}
}

// ProbeNow asks the own host for a tag of its table, if hosts.toml names it for one. While it does not
// answer, Answers, AnswersDigest and Gated say so.
func (k *Keeper) ProbeNow(ctx context.Context) { k.probe(ctx, probeNowFor) }

func (k *Keeper) probe(ctx context.Context, limit time.Duration) {
	if k == nil || k.Ask == nil {
		return
	}
	k.load()
	asked := slices.IndexFunc(k.table.Entries, func(e Entry) bool { return k.Hosts.Position(e.Registry) != Off })
	if asked < 0 {
		k.down = nil
		return
	}
	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if err := k.Ask(bounded, k.table.Entries[asked]); ctx.Err() == nil {
		k.down, k.asked = err, time.Now()
	}
}

// load reads the table, once. One that cannot be read is written anew.
func (k *Keeper) load() {
	if k.loaded || k.Load == nil {
		return
	}
	if t, err := k.Load(); err == nil {
		k.table, k.loaded = t, true
	}
}

// named returns the digest of a tag in the table; empty: the table does not have it.
func (t Table) named(ref release.Reference) digest.Digest {
	registry, repository, _ := strings.Cut(ref.Repository, "/")
	e, _ := t.Tag(registry, repository, ref.Tag)
	return e.Digest
}

// Err is the error of the last save; nil: the saved table is up to date.
func (k *Keeper) Err() error {
	if k == nil {
		return nil
	}
	return k.err
}

// Position is where the own host stands among the hosts of a repository's registry.
func (k *Keeper) Position(repository string) Position {
	if k == nil || k.Hosts == nil {
		return Off
	}
	return k.Hosts.Position(RegistryOf(repository))
}

// IsAsked reports whether hosts.toml names the own host for a tag of the table.
func (k *Keeper) IsAsked() bool {
	if k == nil {
		return false
	}
	k.load()
	for _, p := range k.positions() {
		if p != Off {
			return true
		}
	}
	return false
}

// positions returns the position for each registry of the table.
func (k *Keeper) positions() map[string]Position {
	out := map[string]Position{}
	for _, e := range k.table.Entries {
		if _, known := out[e.Registry]; !known {
			out[e.Registry] = k.Hosts.Position(e.Registry)
		}
	}
	return out
}

// Answers returns the position at which the own host answers kubelet's pull of a tag with a
// digest; Off: it does not.
func (k *Keeper) Answers(ref release.Reference, d digest.Digest) Position {
	if d == "" || k == nil || k.down != nil || k.table.named(ref.Tagged()) != d {
		return Off
	}
	return k.Position(ref.Repository)
}

// AnswersDigest is Answers for a pull by digest.
func (k *Keeper) AnswersDigest(pin release.Pin) Position {
	if k == nil || k.down != nil {
		return Off
	}
	registry, repository, _ := strings.Cut(pin.Repository, "/")
	if _, ok := k.table.Digest(registry, repository, pin.Digest); !ok {
		return Off
	}
	return k.Position(pin.Repository)
}

// Gated returns what kubelet gets for each tag of the table, where the own host is asked first.
func (k *Keeper) Gated() map[release.Reference]digest.Digest {
	if k == nil || k.Hosts == nil || k.down != nil {
		return nil
	}
	k.load()
	out, positions := map[release.Reference]digest.Digest{}, k.positions()
	for _, e := range k.table.Entries {
		if positions[e.Registry] == Gate {
			out[e.Reference()] = e.Digest
		}
	}
	return out
}
