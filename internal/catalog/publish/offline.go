// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/internal/catalog"
	"github.com/kubic-project/image-update-agent/internal/outside"
)

// The files of a directory of --out. PayloadFile is the file to sign.
const (
	PayloadFile  = "payload.json"
	manifestFile = "manifest.json"
	catalogFile  = "catalog.json"
	blobsDir     = "blobs"
)

// catalogOf is the content of catalogFile.
type catalogOf struct {
	Repository string `json:"repository"`
	Name       string `json:"name"`
}

// writeOut writes the next version into a directory. It stores nothing in the registry.
func (p *Publisher) writeOut(ctx context.Context, r Request, ops []catalog.Op, outcomes []Outcome) (Result, error) {
	d, err := p.prepare(ctx, r.Channel, r.New, ops...)
	if err != nil || d.isEmpty() || r.DryRun {
		return d.planned(outcomes, !d.isEmpty()), err
	}
	body, sum, err := d.manifest.Encode()
	if err != nil {
		return Result{}, err
	}
	payload, err := payloadOf(p.name, sum)
	if err != nil {
		return Result{}, err
	}
	of, err := json.Marshal(catalogOf{Repository: p.repository, Name: p.name})
	if err != nil {
		return Result{}, err
	}
	if entries, err := os.ReadDir(r.Out); err == nil && len(entries) > 0 {
		return Result{}, refuse(KindInput, r.Out, "the directory is not empty")
	}
	files := map[string][]byte{PayloadFile: payload, manifestFile: body, catalogFile: of}
	for d, data := range d.blobs {
		files[filepath.Join(blobsDir, d.Encoded())] = data
	}
	if err := writeDir(r.Out, files); err != nil {
		return Result{}, err
	}
	out := d.planned(outcomes, true)
	out.Digest = sum
	return out, nil
}

// writeDir makes a directory with files: all of them, or no directory.
func writeDir(dir string, files map[string][]byte) error {
	dir = filepath.Clean(dir)
	// No name that somebody else may have used.
	temporary := filepath.Join(filepath.Dir(dir), "."+filepath.Base(dir)+"."+rand.Text())
	err := os.MkdirAll(filepath.Join(temporary, blobsDir), 0o755)
	for name, data := range files {
		if err == nil {
			err = os.WriteFile(filepath.Join(temporary, name), data, 0o644)
		}
	}
	if err == nil {
		err = os.Rename(temporary, dir)
	}
	if err != nil {
		return errors.Join(err, os.RemoveAll(temporary))
	}
	return nil
}

// PublishDir publishes the version that a directory holds, with a signature that was made
// elsewhere over its payload: base64 or bytes. Callers can repeat it after a failure.
func (p *Publisher) PublishDir(ctx context.Context, dir string, sigs [][]byte, dryRun bool) (Result, error) {
	if p.verifier == nil {
		return Result{}, refuse(KindInput, dir, "no public key was given to check the signature")
	}
	d, body, payload, err := p.readDir(dir)
	if err != nil {
		return Result{}, err
	}
	encoded, err := p.checkSignatures(ctx, dir, payload, sigs)
	if err != nil {
		return Result{}, err
	}
	channel, sum := d.manifest.Channel, digest.FromBytes(body)
	is, err := p.head(ctx, channel)
	switch {
	case err != nil:
		return Result{}, err
	case is == sum:
		d.base = Version{Manifest: d.manifest, Digest: sum}
		return d.published(nil, false), nil
	case is != d.manifest.Previous:
		return Result{}, refuse(KindRaced, dir, "made for version %d of %s, which has changed since: %s",
			d.manifest.Version-1, channel, is)
	}
	if err := p.checkLatest(ctx, d.manifest, sum); err != nil {
		return Result{}, err
	}
	if dryRun {
		return d.planned(nil, true), nil
	}
	if is == "" {
		if err := p.checkMovable(ctx, channel); err != nil {
			return Result{}, err
		}
	}
	if err := p.publishSigned(ctx, d, body, payload, encoded...); err != nil {
		return Result{}, err
	}
	if is, err = p.client.Head(ctx, p.repository, channel); err == nil && is != sum {
		err = refuse(KindRaced, channel, "another publisher has published at the same time, as %s", is)
	}
	d.base = Version{Manifest: d.manifest, Digest: sum}
	if err == nil {
		err = p.seen.note(ctx, p.name, channel, d.base, true)
	}
	return d.published(nil, true), err
}

// checkSignatures returns signatures of a payload in base64. Each is valid, and as many keys as must have made them.
func (p *Publisher) checkSignatures(ctx context.Context, dir string, payload []byte, sigs [][]byte) ([]string, error) {
	var out []string
	keys := map[string]bool{}
	for _, sig := range sigs {
		encoded, err := parseSignature(sig)
		if err != nil {
			return nil, &Error{Kind: KindInput, Object: dir, Text: "not a signature", Err: err}
		}
		key, err := p.verifier.VerifyBytes(ctx, payload, encoded)
		if err != nil {
			return nil, &Error{Kind: KindUnsigned, Object: dir, Text: "the signature is not valid", Err: err}
		}
		if !keys[key] {
			out = append(out, encoded)
		}
		keys[key] = true
	}
	if len(keys) < max(p.require, 1) {
		return nil, refuse(KindUnsigned, dir, "too few keys signed it: %d, want %d", len(keys), p.require)
	}
	return out, nil
}

// checkLatest refuses to publish a version beside or below another one that was signed: the registry
// shows an older channel, or another publisher's publication did not end.
func (p *Publisher) checkLatest(ctx context.Context, m catalog.Manifest, sum digest.Digest) error {
	if err := p.seen.note(ctx, p.name, m.Channel, Version{Manifest: m}, false); err != nil {
		return err
	}
	tags, err := p.client.Tags(ctx, p.repository)
	if err != nil {
		return err
	}
	later, err := p.laterVersions(ctx, m.Version-1, m.Channel, tags)
	if err != nil {
		return err
	}
	for _, v := range later {
		if v.Digest != sum {
			return refuse(KindOlder, m.Channel, "version %d was signed and published before, and the channel is at version %d",
				v.Version, m.Version-1)
		}
	}
	return nil
}

// publishSigned stores a version whose signature was made elsewhere.
func (p *Publisher) publishSigned(ctx context.Context, d draft, body, payload []byte, sigs ...string) error {
	if err := p.putBlobs(ctx, d.blobs); err != nil {
		return err
	}
	tag := catalog.VersionTag(d.manifest.Channel, d.manifest.Version)
	if err := p.client.PutManifest(ctx, p.repository, tag, body); err != nil {
		return err
	}
	if err := p.putSignature(ctx, catalog.SignatureTag(digest.FromBytes(body)), payload, sigs...); err != nil {
		return err
	}
	return p.moveTag(ctx, d.manifest.Channel, body)
}

// readDir reads a directory of writeOut.
func (p *Publisher) readDir(dir string) (d draft, body, payload []byte, err error) {
	if body, err = readFile(dir, manifestFile, catalog.MaxManifest); err != nil {
		return d, nil, nil, err
	}
	if d.manifest, err = catalog.DecodeManifest(body); err != nil {
		return d, nil, nil, fmt.Errorf("%s: %w", filepath.Join(dir, manifestFile), err)
	}
	if payload, err = readFile(dir, PayloadFile, maxSmall); err != nil {
		return d, nil, nil, err
	}
	want, err := payloadOf(p.name, digest.FromBytes(body))
	if err != nil {
		return d, nil, nil, err
	}
	if string(want) != string(payload) {
		return d, nil, nil, refuse(KindInput, dir, "%s is not of its manifest, or not of %s", PayloadFile, p.name)
	}
	entries, err := os.ReadDir(filepath.Join(dir, blobsDir))
	if err != nil {
		return d, nil, nil, err
	}
	d.blobs = map[digest.Digest][]byte{}
	for _, entry := range entries {
		data, err := readFile(dir, filepath.Join(blobsDir, entry.Name()), catalog.MaxManifest*2)
		if err != nil {
			return d, nil, nil, err
		}
		if sum := d.add(data); sum.Encoded() != entry.Name() {
			return d, nil, nil, refuse(KindInput, filepath.Join(dir, blobsDir, entry.Name()), "has digest %s", sum)
		}
	}
	return d, body, payload, nil
}

// maxSmall bounds small files, in bytes.
const maxSmall = 64 << 10

// CatalogOf returns the catalog that a directory was written for.
func CatalogOf(dir string) (repository, name string, err error) {
	data, err := readFile(dir, catalogFile, maxSmall)
	if errors.Is(err, fs.ErrNotExist) {
		return "", "", &Error{Kind: KindInput, Object: dir, Text: "not a directory that --out wrote", Err: err}
	}
	if err != nil {
		return "", "", err
	}
	var of catalogOf
	if err := json.Unmarshal(data, &of); err != nil {
		return "", "", &Error{Kind: KindInput, Object: dir, Text: catalogFile, Err: outside.Error(err)}
	}
	return of.Repository, of.Name, nil
}

func readFile(dir, name string, limit int64) ([]byte, error) {
	f, err := os.Open(filepath.Join(dir, name))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := outside.ReadAll(f, limit)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.Name(), err)
	}
	return data, nil
}
