// SPDX-License-Identifier: Apache-2.0

package agenttest

import (
	"context"
	"reflect"
	"slices"
	"sync"

	"github.com/kubic-project/image-update-agent/agent/ownhost"
)

// OwnHost keeps the table of the node's own host in memory. It implements ownhost.Store.
type OwnHost struct {
	// OnSave is called before a table is kept, and may refuse it; nil: none is refused.
	OnSave func(ownhost.Table) error

	// Down is why nobody listens for it; nil: it answers.
	Down error

	mu     sync.Mutex
	table  ownhost.Table
	writes int
}

// Save answers as ownhost.Store.
func (o *OwnHost) Save(ctx context.Context, t ownhost.Table) error {
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
	t = ownhost.Table{Entries: slices.Clone(t.Entries)}
	if o.writes == 0 || !reflect.DeepEqual(t, o.table) {
		o.table = t
		o.writes++
	}
	return nil
}

// Table is the table that was saved last.
func (o *OwnHost) Table() ownhost.Table {
	o.mu.Lock()
	defer o.mu.Unlock()
	return ownhost.Table{Entries: slices.Clone(o.table.Entries)}
}

// Writes counts the tables that were kept.
func (o *OwnHost) Writes() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.writes
}
