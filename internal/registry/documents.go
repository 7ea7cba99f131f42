// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"bytes"
	"slices"
	"sync"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/kubic-project/image-update-agent/agent/release"
)

const (
	// maxDocuments limits the bytes of all documents, and is at least the size of one.
	maxDocuments = maxManifest
	// documentAge is how long a document is kept. A pull follows its description by seconds, unless it is delayed.
	documentAge = 10 * time.Minute
	// documentCost is what a document needs besides its body, in bytes.
	documentCost = 512
)

// documents are what a poll and a description learned of manifests and configs, for the pull that follows: it sends no
// request for them. A pull takes a document out.
type documents struct {
	mu    sync.Mutex
	all   map[release.Pin]document
	order []release.Pin // the oldest first
	size  int           // of all, in bytes
	timer *time.Timer   // clears them
}

type document struct {
	located ocispec.Descriptor // from the answer to HEAD for a tag; without a size: unknown
	body    []byte             // nil: not read
}

func (d document) size() int { return len(d.body) + documentCost }

// locate keeps the answer to HEAD for a tag, if it has media type and size. A body means that it is of GET.
func (d *documents) locate(repository string, found manifest) {
	if found.body != nil || found.desc.MediaType == "" || found.desc.Size <= 0 {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	pin := release.Pin{Repository: repository, Digest: found.desc.Digest}
	d.put(pin, document{located: found.desc, body: d.all[pin].body})
}

// keep keeps a body, which has the digest.
func (d *documents) keep(repository string, dg digest.Digest, body []byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	pin := release.Pin{Repository: repository, Digest: dg}
	d.put(pin, document{located: d.all[pin].located, body: body})
}

// put adds or replaces a document. It drops the oldest ones if there is no room. The caller holds the lock.
func (d *documents) put(pin release.Pin, is document) {
	d.remove(pin)
	for d.size+is.size() > maxDocuments && len(d.order) > 0 {
		d.remove(d.order[0])
	}
	if d.timer == nil {
		d.all, d.timer = map[release.Pin]document{}, time.AfterFunc(documentAge, d.clear)
	}
	d.timer.Reset(documentAge)
	d.all[pin], d.order, d.size = is, append(d.order, pin), d.size+is.size()
}

// remove removes a document. The caller holds the lock.
func (d *documents) remove(pin release.Pin) {
	is, found := d.all[pin]
	if !found {
		return
	}
	delete(d.all, pin)
	d.size -= is.size()
	n := slices.Index(d.order, pin)
	d.order = slices.Delete(d.order, n, n+1)
}

func (d *documents) clear() {
	d.mu.Lock()
	defer d.mu.Unlock()
	clear(d.all)
	d.order, d.size = nil, 0
}

// located returns the descriptor of a document; false if it is not known.
func (d *documents) located(repository string, dg digest.Digest) (ocispec.Descriptor, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	is := d.all[release.Pin{Repository: repository, Digest: dg}].located
	return is, is.Size > 0
}

// read returns the kind and the body of a document that was located and read, and leaves it for the pull.
func (d *documents) read(repository string, dg digest.Digest) (mediaType string, body []byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	is := d.all[release.Pin{Repository: repository, Digest: dg}]
	if is.located.Size != int64(len(is.body)) {
		return "", nil
	}
	return is.located.MediaType, is.body
}

// take takes a document out whose body was read, and has the size of its descriptor.
func (d *documents) take(repository string, desc ocispec.Descriptor) (readDocument, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	pin := release.Pin{Repository: repository, Digest: desc.Digest}
	is := d.all[pin]
	if is.body == nil || int64(len(is.body)) != desc.Size {
		return readDocument{}, false
	}
	d.remove(pin)
	return readDocument{bytes.NewReader(is.body)}, true
}

// readDocument is the content of a document.
type readDocument struct{ *bytes.Reader }

// Close does nothing.
func (readDocument) Close() error { return nil }
