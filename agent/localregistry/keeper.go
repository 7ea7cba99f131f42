// SPDX-License-Identifier: Apache-2.0

package localregistry

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
)

// Keeper keeps the table up to date and knows the local registry's answers from it. A nil Keeper has no local registry.
type Keeper struct {
	Store Store
	Hosts Hosts
	// Load reads the last saved table, possibly of an earlier process; nil: there is none.
	Load func() (Table, error)
	// Memory knows for which registries the local registry was enabled; nil: unknown.
	Memory Memory
	// Files enables and disables the local registry; nil: it cannot be changed.
	Files Files
	// Journal reads the statistics of the local registry's answers; nil: unknown.
	Journal func() (Journal, error)
	// Ask sends a request to the local registry as containerd does; it returns an error if the answer differs from the
	// entry. nil: it is assumed to answer.
	Ask func(ctx context.Context, e Entry) error

	table   Table // the saved one
	omitted []Omitted
	loaded  bool
	err     error // of the last save
	down    error // of the last probe
	asked   time.Time
}

// Each observation of the node probes, so a host that hangs delays it.
const (
	probeEvery = 10 * time.Second
	probeFor   = 2 * time.Second
	// probeNowFor is systemd's time limit for a process of the local registry.
	probeNowFor = 5 * time.Second
)

// Keep makes the table and saves it, even after cancellation. It sets Last and IsPrivate of f. If it fails, the local
// registry still answers from the previous table.
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
		k.err = fmt.Errorf("table of the local registry: %w", k.err)
		return k.err
	}
	k.table, k.omitted, k.loaded = next, omitted, true
	return nil
}

// Probe is like ProbeNow, but at most once in 10 seconds, and for at most 2 seconds.
func (k *Keeper) Probe(ctx context.Context) {
	if k != nil && (k.asked.IsZero() || time.Since(k.asked) >= probeEvery) {
		k.probe(ctx, probeFor)
	}
}

// ProbeNow asks the local registry for the first tag in its table of a registry that uses it, if there is one. While it
// does not answer, Answers, AnswersDigest and Gated return nothing.
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

// load reads the table once. If it cannot be read it is written again.
func (k *Keeper) load() {
	if k.loaded || k.Load == nil {
		return
	}
	if t, err := k.Load(); err == nil {
		k.table, k.loaded = t, true
	}
}

// digestIn returns the digest of a tag in a table; empty if the table does not have it.
func digestIn(t Table, ref release.Reference) digest.Digest {
	registry, repository, _ := strings.Cut(ref.Repository, "/")
	e, _ := t.Tag(registry, repository, ref.Tag)
	return digest.Digest(e.Digest)
}

// Position returns the local registry's position among the hosts of a repository's registry.
func (k *Keeper) Position(repository string) Position {
	if k == nil || k.Hosts == nil {
		return Off
	}
	return k.Hosts.Position(RegistryOf(repository))
}

// IsAsked reports whether hosts.toml names the local registry for a followed tag, or for a tag of the table; the table
// may be missing or torn.
func (k *Keeper) IsAsked(followed []Followed) bool {
	if k == nil {
		return false
	}
	k.load()
	return slices.ContainsFunc(followed, func(at Followed) bool { return k.Position(at.Repository) != Off }) ||
		slices.ContainsFunc(slices.Collect(maps.Values(k.positions())), func(p Position) bool { return p != Off })
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

// Answers returns the position at which the local registry answers kubelet's pull of a tag with a digest; Off if it
// does not.
func (k *Keeper) Answers(ref release.Reference, d digest.Digest) Position {
	if d == "" || k == nil || k.down != nil || digestIn(k.table, ref.Tagged()) != d {
		return Off
	}
	return k.Position(ref.Repository)
}

// AnswersDigest is like Answers, for a pull by digest.
func (k *Keeper) AnswersDigest(pin release.Pin) Position {
	if k == nil || k.down != nil {
		return Off
	}
	registry, repository, _ := strings.Cut(pin.Repository, "/")
	if _, ok := k.table.Digest(registry, repository, pin.Digest.String()); !ok {
		return Off
	}
	return k.Position(pin.Repository)
}

// Gated returns the digest that kubelet gets for each tag of the table whose registry asks the local registry first.
func (k *Keeper) Gated() map[release.Reference]digest.Digest {
	if k == nil || k.Hosts == nil || k.down != nil {
		return nil
	}
	k.load()
	out, positions := map[release.Reference]digest.Digest{}, k.positions()
	for _, e := range k.table.Entries {
		if positions[e.Registry] == Gate {
			out[ReferenceOf(e)] = digest.Digest(e.Digest)
		}
	}
	return out
}

// ErrNoRegistry is returned for a text that is not a registry as in the first part of an image's name.
var ErrNoRegistry = errors.New("no registry")

// Files changes the hosts.toml files of registries. Both methods report whether anything has changed, and return an
// error that is release.ErrHeld for a file that they leave as it is.
type Files interface {
	// Enable adds the local registry to the hosts of a registry.
	Enable(ctx context.Context, registry string, at Position) (changed bool, err error)
	// Disable removes it, and restores the file from before.
	Disable(ctx context.Context, registry string) (changed bool, err error)
}

// Wanted is a registry for which a person has enabled the local registry. Other programs write hosts.toml files, too,
// so without it the agent could not tell that the local registry was removed.
type Wanted struct {
	Registry string   `json:"registry"`
	Position Position `json:"position"` // Fallback or Gate
	File     string   `json:"file"`     // the hosts.toml that named it at that time
}

// Memory stores the enabled registries.
type Memory interface {
	// Wanted returns the registries for which the local registry is enabled.
	Wanted() ([]Wanted, error)
	// Why returns why containerd does not ask the local registry as wanted. now is its current position.
	Why(w Wanted, now Position) string
}

// Lost returns the wanted registries whose hosts.toml no longer has the local registry at its position. position
// returns the current one. unknown is why the wanted registries are unknown; empty if they are known. A nil m
// wants none.
func Lost(m Memory, position func(registry string) Position) (lost []LostRegistry, unknown string) {
	if m == nil {
		return nil, ""
	}
	wanted, err := m.Wanted()
	if err != nil {
		return nil, outside.Text(err.Error())
	}
	for _, w := range wanted {
		if now := position(w.Registry); now != w.Position {
			lost = append(lost, LostRegistry{
				Registry: w.Registry, Wanted: w.Position, Position: now, Reason: outside.Text(m.Why(w, now)),
			})
		}
	}
	return lost, ""
}
