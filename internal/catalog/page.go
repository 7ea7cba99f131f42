// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/internal/base/outside"
	"github.com/kubic-project/image-update-agent/tags"
)

// Limits of a page.
const (
	MaxPage     = 1 << 20 // bytes, packed and unpacked
	MaxReleases = 2048
	// Kept is how many of the newest releases a page keeps. Beside them stay the newest release
	// of each short tag, which nodes may follow, and those that are withdrawn, so that the reason
	// reaches whoever runs one.
	Kept = 32
)

// Page lists the releases of an image, the newest first.
type Page struct {
	Image    string    `json:"image"` // repository, as "registry.suse.com/caasp/v4/velum"
	Releases []Release `json:"releases"`
}

// Encode returns the page as gzip JSON. Equal pages have equal bytes.
func (p Page) Encode() ([]byte, error) { return p.encode(nil) }

func (p Page) encode(of checked) ([]byte, error) {
	if err := p.check(of); err != nil {
		return nil, err
	}
	text, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	out, err := pack(text)
	if len(text) > MaxPage || len(out) > MaxPage {
		err = newError(KindTooLarge, "%s: the page has more than %d bytes", p.Image, MaxPage)
	}
	return out, err
}

// packers are writers of gzip, which are large and are used again.
var packers = sync.Pool{New: func() any {
	packer, _ := gzip.NewWriterLevel(io.Discard, gzip.DefaultCompression) // the level is valid
	return packer
}}

// pack compresses text. Equal texts have equal bytes.
func pack(text []byte) ([]byte, error) {
	var out bytes.Buffer
	packer := packers.Get().(*gzip.Writer) //nolint:forcetypeassert // nothing else is stored
	defer packers.Put(packer)
	packer.Reset(&out)
	_, err := packer.Write(text)
	if err == nil {
		err = packer.Close()
	}
	return out.Bytes(), err
}

// unpacker reads what pack has compressed. Its buffers are large, and are used again.
type unpacker struct {
	gzip gzip.Reader
	text bytes.Buffer
}

var unpackers = sync.Pool{New: func() any { return new(unpacker) }}

// unpacked calls do with what pack has compressed, at most limit bytes, which are its own only until it returns.
func unpacked(data []byte, limit int64, do func(text []byte) error) error {
	u := unpackers.Get().(*unpacker) //nolint:forcetypeassert // nothing else is stored
	defer unpackers.Put(u)
	u.text.Reset()
	rest := bytes.NewReader(data)
	if err := u.gzip.Reset(rest); err != nil {
		return err
	}
	u.gzip.Multistream(false)
	_, err := u.text.ReadFrom(io.LimitReader(&u.gzip, limit+1))
	switch {
	case err != nil:
		return err
	case int64(u.text.Len()) > limit:
		return fmt.Errorf("%w: over %d bytes", outside.ErrTooLarge, limit)
	case rest.Len() > 0:
		return fmt.Errorf("%d bytes too many", rest.Len())
	}
	return do(u.text.Bytes())
}

// unpack returns what pack has compressed in the blob that is named so, at most limit bytes.
func (r BlobRef) unpack(data []byte, limit int64, name string) (text []byte, err error) {
	if d := digest.FromBytes(data); d != r.Digest || int64(len(data)) != r.Size {
		return nil, newError(KindPage, "%s: has digest %s, want %s", name, d, r.Digest)
	}
	err = unpacked(data, limit, func(own []byte) error {
		text = bytes.Clone(own)
		return nil
	})
	if err != nil {
		return nil, wrap(KindFormat, err, "%s", name)
	}
	return text, nil
}

// WithoutUnknown returns the page without the fields that this package does not know. Use it for a page that is not
// written again.
func (p Page) WithoutUnknown() Page {
	p.Releases = slices.Clone(p.Releases)
	for n := range p.Releases {
		p.Releases[n].Unknown = nil
	}
	return p
}

// check checks all fields of the page, but for lists of members that were checked.
func (p Page) check(of checked) error {
	if err := checkImage(p.Image); err != nil {
		return err
	}
	if len(p.Releases) > MaxReleases {
		return newError(KindTooLarge, "%s: more than %d releases", p.Image, MaxReleases)
	}
	seen := map[string]bool{}
	for _, r := range p.Releases {
		if r.Set != "" && of.has(r.Members) {
			r.Members = nil
		}
		if err := r.check(); err != nil {
			return wrap(KindFormat, err, "%s", p.Image)
		}
		if seen[r.Tag] {
			return newError(KindFormat, "%s: %s is listed twice", p.Image, r.Tag)
		}
		seen[r.Tag] = true
	}
	return nil
}

// Trimmed returns the page with the newest releases first, and without those that it does not
// keep.
func (p Page) Trimmed() Page {
	sorted := slices.Clone(p.Releases)
	slices.SortStableFunc(sorted, newestFirst)
	followed := map[string]bool{} // versions of each name
	p.Releases = nil
	space := maxAdvisories
	for n, r := range sorted {
		isKept := n < Kept || r.Withdrawn != nil
		if tag, err := tags.Parse(r.Tag); err == nil && r.Withdrawn == nil && !followed[tag.Series()] {
			followed[tag.Series()], isKept = true, true
		}
		if n >= Kept {
			r.Members = nil // so that a page has an end
		}
		if !isKept || len(p.Releases) == MaxReleases {
			continue
		}
		if space -= r.Advisory.size(); space < 0 {
			r.Advisory = nil
		}
		p.Releases = append(p.Releases, r)
	}
	return p
}

// newestFirst orders releases by their tags; those without an order by time, and after the others.
func newestFirst(a, b Release) int {
	x, errX := tags.Parse(a.Tag)
	y, errY := tags.Parse(b.Tag)
	switch {
	case errX == nil && errY == nil:
		return cmp.Or(tags.Compare(y, x), cmp.Compare(a.Tag, b.Tag))
	case errX == nil:
		return -1
	case errY == nil:
		return 1
	}
	return cmp.Or(b.Created.Compare(a.Created), cmp.Compare(b.Tag, a.Tag))
}
