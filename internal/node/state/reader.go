// SPDX-License-Identifier: Apache-2.0

package state

import (
	"context"

	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// Reader reads the record and writes nothing: a plan may run beside the daemon, to which the files belong.
type Reader struct{ stateDir string }

var _ record.Recorder = Reader{}

// NewReader returns a reader of the record in a directory.
func NewReader(stateDir string) Reader { return Reader{stateDir} }

// Load reads the record. An unusable one counts as empty, as for the daemon, but it stays where it is.
func (r Reader) Load(ctx context.Context) (record.Record, error) {
	rec, _, err := load(ctx, r.stateDir)
	return rec, err
}

// Save writes nothing.
func (Reader) Save(context.Context, record.Record) error { return nil }

// Publish writes nothing.
func (Reader) Publish(context.Context, status.Status) error { return nil }
