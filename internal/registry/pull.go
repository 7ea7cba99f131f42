// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
	"github.com/kubic-project/image-update-agent/internal/registry/transport"
)

// Locate describes a manifest or index for a pull: its media type and size, as the answer to HEAD says, which
// containerd uses, too. It sends no request if Resolve has just got that answer for a tag.
func (r *Registry) Locate(ctx context.Context, repository string, d digest.Digest) (ocispec.Descriptor, error) {
	if err := d.Validate(); err != nil {
		return ocispec.Descriptor{}, fmt.Errorf("registry: %s: digest %q: %w", repository, outside.Text(d.String()), err)
	}
	if desc, located := r.documents.located(repository, d); located {
		return desc, nil
	}
	ctx = transport.ForPull(ctx)
	found, err := each(ctx, r, repository, mayPull, func(e endpoint) (manifest, error) {
		return e.locate(ctx, d.String(), d, true)
	})
	return found.desc, err
}

// Fetch opens a manifest or blob for a pull; its reader is an io.Seeker. Unlike containerd's fetcher it repeats no
// request, because the agent does the back-off. The errors of the reader are SourceErrors.
func (r *Registry) Fetch(ctx context.Context, repository string, desc ocispec.Descriptor) (io.ReadCloser, error) {
	if err := desc.Digest.Validate(); err != nil {
		return nil, fmt.Errorf("registry: %s: digest %q: %w", repository, outside.Text(desc.Digest.String()), err)
	}
	if kept, is := r.documents.take(repository, desc); is {
		return kept, nil
	}
	return &download{registry: r, ctx: transport.ForPull(ctx), repository: repository, desc: desc}, nil
}

// maxTorn is how often a transfer is resumed without a byte in between.
const maxTorn = 3

// download is the content of a digest, from the first host that serves it. The request is sent with the first Read, so
// a resumed pull starts at its offset; if a connection ends too early, the rest is requested. The reader verifies the
// content.
type download struct {
	registry   *Registry
	ctx        context.Context //nolint:containedctx // of the one transfer that reads it
	repository string
	desc       ocispec.Descriptor

	body   io.ReadCloser // nil before the request
	from   endpoint      // of body
	offset int64
	torn   int

	waited time.Duration // since the last check of the speed
	came   int64         // bytes since then
}

// Read returns io.EOF at the size of the descriptor without a request.
func (p *download) Read(data []byte) (int, error) {
	if p.body == nil {
		if p.desc.Size > 0 && p.offset >= p.desc.Size {
			return 0, io.EOF
		}
		if err := p.open(); err != nil {
			return 0, err
		}
	}
	began := time.Now()
	n, err := p.body.Read(data)
	p.offset += int64(n)
	if n > 0 {
		p.torn = 0
	}
	switch {
	case err == nil:
		err = p.checkSpeed(time.Since(began), n)
	case errors.Is(err, io.ErrUnexpectedEOF) && p.torn < maxTorn:
		p.torn++
		p.drop()
		return n, nil
	}
	if err != nil && !errors.Is(err, io.EOF) {
		err = p.from.failed(err)
	}
	return n, err
}

// speedTime is the period over which a layer's speed is measured.
const speedTime = time.Minute

// checkSpeed returns an error for a transfer that is too slow. Only the time in which Read waits counts: a slow reader
// means a slow disk, or a limited bandwidth.
func (p *download) checkSpeed(wait time.Duration, n int) error {
	p.waited += wait
	p.came += int64(n)
	if p.waited < speedTime {
		return nil
	}
	least, isSlow := p.registry.leastSpeed, float64(p.came) < float64(p.registry.leastSpeed)*p.waited.Seconds()
	p.waited, p.came = 0, 0
	if isSlow {
		return transport.Timeout(
			fmt.Sprintf("body: less than %d bytes a second over %s (staging.leastSpeed)", least, speedTime))
	}
	return nil
}

// open requests the bytes from the offset on, from the hosts in order.
func (p *download) open() error {
	kind := "blobs"
	if images.IsManifestType(p.desc.MediaType) || images.IsIndexType(p.desc.MediaType) {
		kind = "manifests"
	}
	q := transport.Question{Accept: "*/*", Offset: p.offset}
	if p.desc.MediaType != "" {
		q.Accept = p.desc.MediaType + ", */*"
	}
	var err error
	p.body, err = each(p.ctx, p.registry, p.repository, mayPull, func(e endpoint) (io.ReadCloser, error) {
		q.URL, q.Repository = e.url(kind, p.desc.Digest.String()), e.path
		resp, err := e.client.Send(p.ctx, e.host, q)
		if err != nil {
			return nil, e.failed(err)
		}
		if err := p.skip(resp); err != nil {
			return nil, e.failed(errors.Join(err, resp.Body.Close()))
		}
		e.note(transport.IsPrivate(resp))
		p.from = e
		return resp.Body, nil
	})
	return err
}

// skip advances the body to the offset, because a host may send more than requested.
func (p *download) skip(resp *http.Response) error {
	if resp.StatusCode == http.StatusPartialContent {
		begin := resp.Header.Get("Content-Range")
		if !strings.HasPrefix(begin, fmt.Sprintf("bytes %d-", p.offset)) {
			return fmt.Errorf("content-range %q, want bytes from %d", outside.Text(begin), p.offset)
		}
		return nil
	}
	if _, err := io.CopyN(io.Discard, resp.Body, p.offset); err != nil {
		return fmt.Errorf("body: byte %d: %w", p.offset, err)
	}
	return nil
}

// drop ends a request; the next Read sends another one.
func (p *download) drop() {
	if p.body != nil {
		_ = p.body.Close()
		p.body = nil
	}
}

// Seek sets the position of the next Read.
func (p *download) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += p.offset
	case io.SeekEnd:
		offset += p.desc.Size
	}
	if offset < 0 {
		return 0, fmt.Errorf("%s: seek to %d", p.desc.Digest, offset)
	}
	if offset != p.offset {
		p.drop()
		p.offset = offset
	}
	return offset, nil
}

// Close ends the request.
func (p *download) Close() error {
	p.drop()
	return nil
}

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
