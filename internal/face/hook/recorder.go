// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"context"
	"log/slog"

	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// Recorder is a record.Recorder that also announces each published status. A failed announcement does not fail the
// daemon.
type Recorder struct {
	record.Recorder

	Announce func(context.Context, status.Status) error
	Log      *slog.Logger
}

// Publish publishes a status and announces it.
func (r Recorder) Publish(ctx context.Context, s status.Status) error {
	err := r.Recorder.Publish(ctx, s)
	if failed := r.Announce(ctx, s); failed != nil {
		r.Log.WarnContext(ctx, "change not announced to hooks", "err", failed)
	}
	return err
}
