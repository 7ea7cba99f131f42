// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/internal/registry/ocimanifest"
)

const (
	maxPlain  = 256      // images of a manifest that has no shards
	manyPages = 4096     // images from which on shards are larger
	maxShard  = 64       // pages of a shard
	maxPacked = 64 << 10 // bytes of a shard
)

// ShardRef refers to a shard: a list of the pages of some images. A manifest with more than 256 images has shards, so
// that a node with few images reads little.
type ShardRef struct {
	BlobRef

	First string // the first image of the shard
}

// shard is the content of a shard.
type shard struct {
	Pages []PageRef `json:"pages"`
}

// split returns the shards of the pages, and their content by digest; none if there are few pages.
func (m Manifest) split() ([]ShardRef, map[digest.Digest][]byte, error) {
	if len(m.Pages) <= maxPlain {
		return nil, nil, nil
	}
	size := maxShard / 2
	if len(m.Pages) > manyPages {
		size = maxShard
	}
	var refs []ShardRef
	blobs := map[digest.Digest][]byte{}
	for pages := range slices.Chunk(m.Pages, size) {
		text, err := json.Marshal(shard{pages})
		if err != nil {
			return nil, nil, err
		}
		data, err := pack(text)
		if err != nil {
			return nil, nil, err
		}
		ref := BlobRef{Digest: digest.FromBytes(data), Size: int64(len(data))}
		blobs[ref.Digest] = data
		refs = append(refs, ShardRef{First: pages[0].Image, BlobRef: ref})
	}
	return refs, blobs, nil
}

// ShardBlobs returns the content of the shards of the encoded manifest, by digest.
func (m Manifest) ShardBlobs() (map[digest.Digest][]byte, error) {
	_, blobs, err := m.split()
	return blobs, err
}

// Shard returns the shard that lists an image, if one does; false: the manifest has no shard for it.
func (m Manifest) Shard(image string) (ShardRef, bool) {
	at, found := slices.BinarySearchFunc(m.Shards, image, func(s ShardRef, image string) int {
		return strings.Compare(s.First, image)
	})
	if !found {
		at--
	}
	if at < 0 {
		return ShardRef{}, false
	}
	return m.Shards[at], true
}

// DecodeShard decodes a shard and checks all of it.
func DecodeShard(data []byte, ref ShardRef) ([]PageRef, error) {
	text, err := ref.unpack(data, maxPacked, "shard of "+ref.First)
	if err != nil {
		return nil, err
	}
	_, err = (&ocimanifest.Bounds{Entries: maxShard, Members: maxShard * maxUnknown}).Write(text)
	var s shard
	if err == nil {
		err = unmarshal(text, &s)
	}
	if err != nil {
		return nil, wrap(KindFormat, err, "shard of %s", ref.First)
	}
	if len(s.Pages) == 0 || s.Pages[0].Image != ref.First {
		return nil, newError(KindFormat, "shard of %s: another image comes first", ref.First)
	}
	return s.Pages, checkPages(s.Pages)
}

// Join sets the pages of a manifest to those of its shards, in their order.
func (m *Manifest) Join(shards ...[]PageRef) error {
	m.Pages, m.Shards = slices.Concat(shards...), nil
	return m.check()
}

// checkShards checks the references to shards.
func (m Manifest) checkShards() error {
	for n, s := range m.Shards {
		switch err := checkImage(s.First); {
		case err != nil:
			return err
		case n > 0 && s.First <= m.Shards[n-1].First:
			return newError(KindFormat, "shard of %s: want shards sorted", s.First)
		case s.Digest.Validate() != nil || s.Digest.Algorithm() != digest.SHA256:
			return newError(KindFormat, "shard of %s: digest %.40q: want sha256", s.First, string(s.Digest))
		case s.Size <= 0 || s.Size > maxPacked:
			return newError(KindTooLarge, "shard of %s: %d bytes, want at most %d", s.First, s.Size, maxPacked)
		}
	}
	if len(m.Shards) > 0 && len(m.Pages) > 0 {
		return newError(KindFormat, "the manifest has pages and shards")
	}
	return nil
}
