// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"context"
	"errors"
	"slices"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/catalog"
)

// Promoted returns the changes that promote releases, after a check that their images are still
// there.
func (p *Publisher) Promoted(
	ctx context.Context, selected []catalog.Change, rollout *catalog.Rollout,
) ([]catalog.Change, error) {
	out := slices.Clone(selected)
	err := each(ctx, selected, func(ctx context.Context, n int, c catalog.Change) error {
		out[n].Release.Rollout, out[n].Release.Op = rollout, ""
		p.step("checking %s:%s", c.Image, c.Release.Tag)
		_, err := p.client.Head(ctx, c.Image, c.Release.Digest.String())
		if errors.Is(err, release.ErrNotFound) {
			return refuse(KindTag, c.Image+":"+c.Release.Tag, "its registry has no %s any more", c.Release.Digest)
		}
		return err
	})
	return out, err
}
