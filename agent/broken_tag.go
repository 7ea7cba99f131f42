// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"

	"github.com/kubic-project/image-update-agent/agent/follow"
	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/release"
)

// restoreTags restores tags of pod manifests whose image records are broken: the tag names the running release again,
// or the last known good one. A container that starts from a broken record fails even without a pull. The failed pull
// of kubelet counts as a failure of the repository's source, which is retried soon.
func (c *cycle) restoreTags(ctx context.Context, inv *node.Inventory) {
	rec := c.agent.records.Record
	broken := follow.BrokenTags(*inv, follow.ReadPods(*inv, rec, c.agent.Policy), rec)
	for _, tag := range broken {
		err := release.ErrNotFound
		if tag.Digest != "" {
			err = c.agent.Images.Restore(ctx, tag.Record, tag.Digest)
		}
		if errors.Is(err, release.ErrConflict) {
			continue // kubelet has pulled it again
		}
		text := fmt.Sprintf("names %s again", tag.Digest)
		if err != nil {
			text = fmt.Sprintf("names no image until the next pull: %v", err)
			c.log.Error("tag names no image", "tag", tag.Record.Name, "type", tag.Record.NotImage, "err", err)
		} else {
			c.log.Warn("tag named no image, restored", "tag", tag.Record.Name, "type", tag.Record.NotImage, "digest", tag.Digest)
		}
		c.asker.NotePage(tag.Repository, fmt.Errorf("kubelet pulled %s and got %s, a login page or an answer of "+
			"another server; the tag %s",
			tag.Record.Name, tag.Record.NotImage, text))
	}
	if len(broken) == 0 {
		return
	}
	if held, err := c.agent.Images.Held(ctx); err == nil {
		inv.Held = held
	}
}
