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

// restoreTags makes the tags of pod manifests whose records name no image name again what runs, or ran well: a
// container that starts from such a record fails also where nothing has to be pulled. What kubelet got is a failure of
// the repository's source, which is asked again soon.
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
			text = fmt.Sprintf("names no image until it is pulled: %v", err)
			c.log.Error("tag names no image", "tag", tag.Record.Name, "type", tag.Record.NotImage, "err", err)
		} else {
			c.log.Warn("tag named no image, restored", "tag", tag.Record.Name, "type", tag.Record.NotImage, "digest", tag.Digest)
		}
		c.asker.NotePage(tag.Repository, fmt.Errorf("kubelet's pull of %s got %s, a login page or no registry; the tag %s",
			tag.Record.Name, tag.Record.NotImage, text))
	}
	if len(broken) == 0 {
		return
	}
	if held, err := c.agent.Images.Held(ctx); err == nil {
		inv.Held = held
	}
}
