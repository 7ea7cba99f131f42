// SPDX-License-Identifier: Apache-2.0

package agenttest

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"sync"

	"github.com/kubic-project/image-update-agent/agent/localregistry"
)

// LocalRegistry keeps the table of the node's local registry in memory. It implements localregistry.Store.
type LocalRegistry struct {
	// OnSave is called before a table is saved, and its error fails the save; nil: no failure.
	OnSave func(localregistry.Table) error

	// Down is why it does not listen; nil: it listens.
	Down error

	mu     sync.Mutex
	table  localregistry.Table
	torn   bool
	writes int
}

// Save implements localregistry.Store.
func (o *LocalRegistry) Save(ctx context.Context, t localregistry.Table) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := t.Check(); err != nil {
		return err
	}
	if o.OnSave != nil {
		if err := o.OnSave(t); err != nil {
			return err
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	t = localregistry.Table{Entries: slices.Clone(t.Entries)}
	if o.writes == 0 || o.torn || !reflect.DeepEqual(t, o.table) {
		o.table, o.torn = t, false
		o.writes++
	}
	return nil
}

// Table returns the last saved table.
func (o *LocalRegistry) Table() localregistry.Table {
	o.mu.Lock()
	defer o.mu.Unlock()
	return localregistry.Table{Entries: slices.Clone(o.table.Entries)}
}

// Tear makes the table unusable until the next Save, as a power cut may.
func (o *LocalRegistry) Tear() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.table, o.torn = localregistry.Table{}, true
}

// Load returns the table, or an error if it is torn.
func (o *LocalRegistry) Load() (localregistry.Table, error) {
	t := o.Table()
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.torn {
		return t, errors.New("not a table in JSON")
	}
	return t, nil
}

// Writes counts the saved tables.
func (o *LocalRegistry) Writes() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.writes
}
