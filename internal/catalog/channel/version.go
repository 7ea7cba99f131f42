// SPDX-License-Identifier: Apache-2.0

package channel

import (
	"time"

	"github.com/opencontainers/go-digest"

	agentcatalog "github.com/kubic-project/image-update-agent/agent/catalog"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/catalog"
)

// version is a verified version of the channel, as catalog.json has it.
type version struct {
	Name    string        `json:"name"`
	Channel string        `json:"channel"`
	Version uint64        `json:"version"`
	Digest  digest.Digest `json:"digest"`
	Created time.Time     `json:"created,omitzero"`
	Expires time.Time     `json:"expires,omitzero"`
	Keys    []string      `json:"keys,omitempty"` // fingerprints of the keys that signed it
	// Images are the pages of the images that the node has asked about; empty: not listed.
	Images map[string]digest.Digest `json:"images"`

	by    release.Resolved // the host that confirmed it
	pages map[string]storedPage
}

// storedPage is a verified page.
type storedPage struct {
	data     []byte // nil: it is stored
	releases []catalog.Release
}

// has reports whether the version answers about all images.
func (v version) has(images []string) bool {
	for _, image := range images {
		if _, ok := v.Images[image]; !ok {
			return false
		}
	}
	return true
}

// listing returns the version for the agent. name is the catalog's.
func (v version) listing(name string) agentcatalog.Listing {
	if v.Images == nil { // none is known, or its key is not trusted any more
		return agentcatalog.Listing{Catalog: name}
	}
	out := agentcatalog.Listing{
		Catalog: name, Version: v.Version, Digest: v.Digest, Created: v.Created, Expires: v.Expires, By: v.by,
		Images: map[string][]agentcatalog.Listed{},
	}
	for image, page := range v.pages {
		listed := make([]agentcatalog.Listed, 0, len(page.releases))
		for _, r := range page.releases {
			listed = append(listed, listedOf(r))
		}
		out.Images[image] = listed
	}
	return out
}

func listedOf(r catalog.Release) agentcatalog.Listed {
	out := agentcatalog.Listed{
		Tag: r.Tag, Digest: r.Digest, Created: r.Created, Set: r.Set, Advisory: r.Advisory,
		UnknownCritical: r.UnknownCritical(),
	}
	for _, m := range r.Members {
		image, tag := catalog.SplitMember(m)
		out.Members = append(out.Members, release.Reference{Repository: image, Tag: tag})
	}
	if r.Rollout != nil {
		out.Rollout = agentcatalog.Rollout{
			From: r.Rollout.From, Spread: time.Duration(r.Rollout.Hours) * time.Hour,
			Paused: r.Rollout.Paused != nil,
		}
	}
	if w := r.Withdrawn; w != nil {
		out.Withdrawn = &agentcatalog.Withdrawal{At: w.At, Reason: w.Reason, To: w.To}
	}
	return out
}
