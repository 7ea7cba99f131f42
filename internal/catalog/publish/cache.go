// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"sync"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/internal/catalog"
)

const (
	maxCache    = 64 << 20 // bytes of blobs
	maxTagLists = 64       // of repositories of images: a batch has the builds of an image together
)

// cache has what one publisher has read and verified, by what never changes: digests, and the
// tags of ops. The zero value is empty.
type cache struct {
	mu       sync.Mutex
	versions map[digest.Digest]Version
	blobs    map[digest.Digest][]byte
	size     int
	signers  map[string]string // of versions, by channel and digest
	ops      map[string]cachedOp
	tags     map[string]func() ([]string, error) // by repository of images
}

// tagsOf returns what a function returns for a repository. It is called once, also by several callers at once.
func (c *cache) tagsOf(repository string, list func() ([]string, error)) ([]string, error) {
	c.mu.Lock()
	once, ok := c.tags[repository]
	if !ok {
		if c.tags == nil || len(c.tags) > maxTagLists {
			c.tags = map[string]func() ([]string, error){}
		}
		once = sync.OnceValues(list)
		c.tags[repository] = once
	}
	c.mu.Unlock()
	tags, err := once()
	if err != nil { // the next caller asks again
		c.mu.Lock()
		delete(c.tags, repository)
		c.mu.Unlock()
	}
	return tags, err
}

func (c *cache) version(d digest.Digest) (Version, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v, ok := c.versions[d]
	return v, ok
}

func (c *cache) addVersion(v Version) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.versions == nil || len(c.versions) > 100 {
		c.versions = map[digest.Digest]Version{}
	}
	c.versions[v.Digest] = v
}

func (c *cache) blob(d digest.Digest) ([]byte, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	data, ok := c.blobs[d]
	return data, ok
}

func (c *cache) addBlob(d digest.Digest, data []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.size += len(data); c.blobs == nil || c.size > maxCache {
		c.blobs, c.size = map[digest.Digest][]byte{}, len(data)
	}
	c.blobs[d] = data
}

// signer returns the key that signed a version, as it was verified for a channel.
func (c *cache) signer(channel string, d digest.Digest) (key string, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key, ok = c.signers[channel+" "+d.String()]
	return key, ok
}

func (c *cache) addSigner(channel string, d digest.Digest, key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.signers == nil {
		c.signers = map[string]string{}
	}
	c.signers[channel+" "+d.String()] = key
}

// cachedOp is an op that was read, or why it does not count.
type cachedOp struct {
	op  catalog.Op
	why string
}

func (c *cache) op(tag string) (cachedOp, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	op, ok := c.ops[tag]
	return op, ok
}

func (c *cache) addOp(tag string, op cachedOp) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ops == nil {
		c.ops = map[string]cachedOp{}
	}
	c.ops[tag] = op
}
