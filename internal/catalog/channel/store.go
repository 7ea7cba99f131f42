// SPDX-License-Identifier: Apache-2.0

package channel

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"

	agentcatalog "github.com/kubic-project/image-update-agent/agent/catalog"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/base/nodefile"
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
		Images: map[string][]catalog.Release{},
	}
	for image, page := range v.pages {
		out.Images[image] = page.releases
	}
	return out
}

// The files of the store: the version, and its pages by digest.
const (
	versionFile = "catalog.json"
	pageSuffix  = ".page"
	maxVersion  = catalog.MaxManifest
)

// store keeps the verified version in a directory.
type store struct {
	dir string
	log *slog.Logger
}

// load returns the stored version; the zero version if there is none. A page that is not as
// stored is left out, so that it is fetched again.
func (s store) load() (version, error) {
	dir, err := nodefile.OpenDir(s.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return version{}, nil
	}
	if err != nil {
		return version{}, err
	}
	defer func() { _ = dir.Close() }()
	file, err := dir.Read(versionFile, maxVersion)
	if errors.Is(err, fs.ErrNotExist) { // it was forgotten
		return version{}, nil
	}
	if err != nil {
		return version{}, err
	}
	var v version
	if err := json.Unmarshal(file.Data, &v); err != nil {
		return version{}, fmt.Errorf("%s/%s: %w", s.dir, versionFile, err)
	}
	if v.Version == 0 || v.Digest.Validate() != nil {
		return version{}, fmt.Errorf("%s/%s: no version, or no digest", s.dir, versionFile)
	}
	v.pages = map[string]storedPage{}
	for image, d := range v.Images {
		if d == "" {
			continue
		}
		page, err := loadPage(dir, image, d)
		if err != nil {
			s.log.Warn("cannot use the stored page", "image", image, "err", err)
			delete(v.Images, image)
			continue
		}
		v.pages[image] = page
	}
	return v, nil
}

func loadPage(dir *nodefile.Dir, image string, d digest.Digest) (storedPage, error) {
	if err := d.Validate(); err != nil {
		return storedPage{}, err
	}
	file, err := dir.Read(d.Encoded()+pageSuffix, catalog.MaxPage)
	if err != nil {
		return storedPage{}, err
	}
	page, err := catalog.DecodePage(file.Data, catalog.PageRef{Image: image, Digest: d, Size: int64(len(file.Data))})
	return storedPage{nil, page.WithoutUnknown().Releases}, err
}

// save stores a version: first its pages, then the file that refers to them. Then it removes
// pages that the version does not have.
func (s store) save(v version) error {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return err
	}
	dir, err := nodefile.OpenDir(s.dir)
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
	keep := map[string]bool{versionFile: true}
	for image, page := range v.pages {
		name := v.Images[image].Encoded() + pageSuffix
		keep[name] = true
		if page.data == nil {
			continue // stored already
		}
		if _, err := dir.Write(name, page.data, nodefile.Options{}); err != nil {
			return err
		}
	}
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	if _, err := dir.Write(versionFile, append(text, '\n'), nodefile.Options{}); err != nil {
		return err
	}
	return removeOthers(dir, keep)
}

// remove removes all files of the store.
func (s store) remove() error {
	dir, err := nodefile.OpenDir(s.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
	if err := dir.Remove(versionFile, nil); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return removeOthers(dir, nil)
}

func removeOthers(dir *nodefile.Dir, keep map[string]bool) error {
	names, err := dir.List()
	if err != nil {
		return err
	}
	for _, name := range names {
		if strings.HasSuffix(name, pageSuffix) && !keep[name] {
			err = errors.Join(err, dir.Remove(name, nil))
		}
	}
	return err
}
