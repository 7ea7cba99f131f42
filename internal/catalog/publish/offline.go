// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/internal/base/outside"
	"github.com/kubic-project/image-update-agent/internal/catalog"
	"github.com/kubic-project/image-update-agent/internal/catalog/ops"
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
	// Head is what the channel's tag named, if that is not the version before.
	Head digest.Digest `json:"head,omitempty"`
}

// writeOut writes the next version into a directory, and returns its digest. It stores nothing in the registry.
func (p *Publisher) writeOut(d draft, dir string) (digest.Digest, error) {
	body, sum, err := d.manifest.Encode()
	if err != nil {
		return "", err
	}
	payload, err := payloadOf(p.name, sum)
	if err != nil {
		return "", err
	}
	about := catalogOf{Repository: p.repository, Name: p.name}
	if d.view.head != d.view.Digest {
		about.Head = d.view.head
	}
	of, err := json.Marshal(about)
	if err != nil {
		return "", err
	}
	if entries, err := os.ReadDir(dir); err == nil && len(entries) > 0 {
		return "", refuse(KindInput, dir, "the directory is not empty")
	}
	files := map[string][]byte{PayloadFile: payload, manifestFile: body, catalogFile: of}
	for d, data := range d.blobs {
		files[filepath.Join(blobsDir, d.Encoded())] = data
	}
	return sum, writeDir(dir, files)
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

// signedDir is a version that a directory holds.
type signedDir struct {
	catalog.Manifest

	dir           string
	digest, head  digest.Digest // head: what the channel's tag must name
	body, payload []byte
	blobs         map[digest.Digest][]byte
}

// PublishDir publishes the version that a directory holds, with signatures that were made elsewhere over its payload:
// base64 or bytes. Callers can repeat it after a failure. The result names everything that the version changes, and so
// does a dry run, which needs neither signatures nor keys.
func (p *Publisher) PublishDir(ctx context.Context, dir string, sigs [][]byte, dryRun bool) (Result, error) {
	d, err := p.readDir(ctx, dir)
	if err != nil {
		return Result{}, err
	}
	k, err := p.keysOf(d.Channel)
	if err != nil {
		return Result{}, err
	}
	if !k.areThere() && !dryRun {
		return Result{}, refuse(KindInput, dir, "no public key was given to check the signature")
	}
	var encoded []string
	if len(sigs) > 0 || !dryRun {
		if encoded, err = checkSignatures(ctx, k, dir, d.payload, sigs); err != nil {
			return Result{}, err
		}
	}
	got := Result{Channel: d.Channel, Version: d.Version}
	is, err := p.head(ctx, d.Channel)
	switch {
	case err != nil:
		return Result{}, err
	case is == d.digest:
		return got.at(Version{Manifest: d.Manifest, Digest: d.digest}), nil
	case is != d.head:
		return Result{}, refuse(KindRaced, dir, "made for version %d of %s, which has changed since: %s",
			d.Version-1, d.Channel, is)
	}
	if err = p.explain(ctx, &got, d, k); err == nil {
		err = p.checkLatest(ctx, d, k)
	}
	if err != nil {
		return Result{}, err
	}
	got.Changed = true
	got.setTimes(d.Manifest)
	if dryRun {
		return got.whole(), nil
	}
	return got.at(Version{Manifest: d.Manifest, Digest: d.digest}), p.publishSigned(ctx, d, is == "", encoded...)
}

// explain names what a version changes: each release, as the pages of it and of the version before tell, each op that
// its log has, and what it leaves out of the version that the channel names. It refuses a version that no publisher
// makes: one that changes what none of its ops names, drops a release or a withdrawal, or uses up numbers.
func (p *Publisher) explain(ctx context.Context, got *Result, d signedDir, k keys) (err error) {
	before := Version{}
	if d.Previous != "" {
		if before, err = p.read(ctx, d.Previous.String(), d.Channel, k); err != nil {
			return err
		}
	}
	for sum, data := range d.blobs { // what the registry does not have yet
		p.cache.addBlob(sum, data)
	}
	next := Version{Manifest: d.Manifest, Digest: d.digest}
	log, err := p.Log(ctx, next)
	if err != nil {
		return err
	}
	log = slices.DeleteFunc(log, func(e catalog.Entry) bool { return e.Version != d.Version })
	got.Others = othersOf(log, nil)
	if err := p.checkOps(ctx, before, next, log); err != nil {
		return &Error{Kind: KindInput, Object: d.dir, Text: "not a version that --out writes", Err: err}
	}
	named := map[string]bool{}
	for _, o := range got.Others {
		for _, member := range o.Releases {
			named[member] = true
		}
	}
	if got.Outcomes, err = p.differing(ctx, before, next); err != nil {
		return err
	}
	for _, o := range got.Outcomes {
		if member := catalog.Member(o.Image, o.Tag); !named[member] && o.Note != dropped {
			return refuse(KindInput, d.dir, "its page changes %s, which none of its ops names", member)
		}
	}
	if d.head == d.Previous {
		return nil
	}
	tags, err := p.registry.Tags(ctx, p.repository)
	if err != nil {
		return err
	}
	before.Channel = d.Channel
	pages := func(ctx context.Context, images ...string) (map[string]catalog.Page, error) {
		return p.Pages(ctx, next, images...)
	}
	left, err := p.leftOut(ctx, before, d.head, tags, pages)
	got.Outcomes = slices.Concat(got.Outcomes, left)
	return err
}

// checkOps checks that a version has published the ops that its log names, and no others, and that there are numbers
// left for the next ones.
func (p *Publisher) checkOps(ctx context.Context, before, next Version, log []catalog.Entry) error {
	if next.Version-before.Version >= catalog.MaxJump || next.Turn > before.Turn+catalog.MaxJump {
		return fmt.Errorf("version %d and turn %d are too far above version %d and turn %d",
			next.Version, next.Turn, before.Version, before.Turn)
	}
	logged := map[string]bool{}
	for _, e := range log {
		logged[e.Tag] = true
	}
	had, err := p.mergedOps(ctx, before)
	if err != nil {
		return err
	}
	has, err := p.mergedOps(ctx, next)
	if err != nil {
		return err
	}
	was := ops.State{Merged: had}
	for _, op := range slices.Concat(has, next.Merged) {
		if !logged[op] && !was.IsMerged(op) {
			return fmt.Errorf("it names %s as published, but its log does not have it", op)
		}
	}
	return p.checkWithdrawals(ctx, next, log)
}

// checkWithdrawals checks that the pages of a version have the withdrawals of a log.
func (p *Publisher) checkWithdrawals(ctx context.Context, next Version, log []catalog.Entry) error {
	for _, e := range log {
		if e.Do != catalog.ActionWithdraw {
			continue
		}
		pages, err := p.Pages(ctx, next, imagesOf(e.Op)...)
		if err != nil {
			return err
		}
		for _, l := range ops.Lost(ops.State{Pages: pages}, e.Op) {
			if !l.Final && l.By == "" {
				return fmt.Errorf("its log withdraws %s, but its page offers it", l.Change.Member())
			}
		}
	}
	return nil
}

// differing returns what differs between the pages of two versions.
func (p *Publisher) differing(ctx context.Context, before, next Version) (out []Outcome, err error) {
	changed := notIn(next, before)
	for _, ref := range before.Pages {
		if _, listed := next.Page(ref.Image); !listed {
			return nil, refuse(KindInput, next.Channel,
				"version %d lacks %s, which the version before lists", next.Version, ref.Image)
		}
	}
	old, err := p.Pages(ctx, before, changed...)
	if err != nil {
		return nil, err
	}
	pages, err := p.Pages(ctx, next, changed...)
	for _, image := range changed {
		if err := checkPage(image, old[image], pages[image]); err != nil {
			return nil, err
		}
		out = append(out, changesOf(image, old[image], pages[image])...)
	}
	return out, err
}

const dropped = "older than the releases that the page keeps"

// checkPage checks that a page has the releases of the one before, with their digests, but those that it does not keep.
func checkPage(image string, before, after catalog.Page) error {
	all := after
	all.Releases = slices.Clone(after.Releases)
	for _, was := range before.Releases {
		is := ops.Find(after, was.Tag)
		switch {
		case is == nil:
			all.Releases = append(all.Releases, was)
		case is.Digest != was.Digest:
			return refuse(KindInput, catalog.Member(image, was.Tag), "listed with digest %s, not %s", was.Digest, is.Digest)
		}
	}
	for _, r := range all.Trimmed().Releases {
		if ops.Find(after, r.Tag) == nil {
			return refuse(KindInput, catalog.Member(image, r.Tag), "the version before lists it, and this one does not")
		}
	}
	return nil
}

// restored returns a page with the members and the advisories that the page before had: it keeps those of the newest
// releases only.
func restored(before, after catalog.Page) catalog.Page {
	after.Releases = slices.Clone(after.Releases)
	for n := range after.Releases {
		is := &after.Releases[n]
		was := ops.Find(before, is.Tag)
		if was != nil && is.Members == nil {
			is.Members = was.Members
		}
		if was != nil && is.Advisory == nil {
			is.Advisory = was.Advisory
		}
	}
	return after
}

// changeNote says how a release differs from what it was; nil: it was not listed.
func changeNote(was *catalog.Release, is catalog.Release) (note string, isSteered bool) {
	isBoth := was != nil && was.Withdrawn != nil && is.Withdrawn != nil
	switch {
	case isBoth && !is.Advisory.IsSame(was.Advisory):
		return ops.Steered(*was, is), true
	case is.Withdrawn != nil:
		return "withdrawn: " + is.Withdrawn.Reason, false
	case was == nil:
		return ops.Steered(catalog.Release{Set: is.Set}, is), false
	case was.Withdrawn != nil:
		return "offered again; it was withdrawn: " + was.Withdrawn.Reason, false
	}
	return ops.Steered(*was, is), true
}

// changesOf returns what differs between two pages of an image.
func changesOf(image string, before, after catalog.Page) []Outcome {
	var out []Outcome
	space := restored(before, after).Trimmed()
	for _, is := range after.Releases {
		o := Outcome{Image: image, Tag: is.Tag, Digest: is.Digest, Changed: true, Withdrawn: is.Withdrawn != nil}
		was := ops.Find(before, is.Tag)
		if was != nil {
			kept := *was
			of := ops.Find(space, is.Tag)
			if of != nil && of.Members == nil {
				kept.Members = nil
			}
			if of != nil && of.Advisory == nil {
				kept.Advisory = nil
			}
			if ops.IsSame(kept, is) {
				continue
			}
		}
		o.Note, o.Steered = changeNote(was, is)
		out = append(out, o)
	}
	for _, was := range before.Releases {
		if ops.Find(after, was.Tag) == nil {
			out = append(out, Outcome{Image: image, Tag: was.Tag, Digest: was.Digest, Note: dropped})
		}
	}
	return out
}

// checkSignatures returns signatures of a payload in base64. Each is valid, and as many keys as must have made them.
func checkSignatures(ctx context.Context, k keys, dir string, payload []byte, sigs [][]byte) ([]string, error) {
	var out []string
	made := map[string]bool{}
	for _, sig := range sigs {
		encoded, err := parseSignature(sig)
		if err != nil {
			return nil, &Error{Kind: KindInput, Object: dir, Text: "not a signature", Err: err}
		}
		if !k.areThere() {
			return nil, refuse(KindInput, dir, "no public key was given to check the signature")
		}
		key, err := k.one.VerifyBytes(ctx, payload, encoded)
		if err != nil {
			return nil, &Error{Kind: KindUnsigned, Object: dir, Text: "the signature is not valid", Err: err}
		}
		if !made[key] {
			out = append(out, encoded)
		}
		made[key] = true
	}
	if len(made) < k.require {
		return nil, refuse(KindUnsigned, dir, "too few keys signed it: %d, want %d", len(made), k.require)
	}
	return out, nil
}

// checkLatest refuses to publish a version beside or below another one that was signed: the registry shows an older
// channel, or another publisher's publication did not end.
func (p *Publisher) checkLatest(ctx context.Context, d signedDir, k keys) error {
	if err := p.state.note(ctx, p.name, d.Channel, Version{Manifest: d.Manifest}, false); err != nil {
		return err
	}
	tags, err := p.registry.Tags(ctx, p.repository)
	if err != nil {
		return err
	}
	at := &View{p: p, keys: k}
	at.Channel = d.Channel
	later, err := at.laterVersions(ctx, laterTags(d.Version-1, d.Channel, tags))
	if err != nil {
		return err
	}
	for _, v := range later {
		if v.Digest != d.digest {
			return refuse(KindOlder, d.Channel, "version %d was signed and published before, and the channel is at version %d",
				v.Version, d.Version-1)
		}
	}
	return nil
}

// publishSigned stores a version whose signature was made elsewhere.
func (p *Publisher) publishSigned(ctx context.Context, d signedDir, isNew bool, sigs ...string) error {
	if isNew {
		if err := p.checkMovable(ctx, d.Channel); err != nil {
			return err
		}
	}
	err := each(ctx, p.jobs, slices.Sorted(maps.Keys(d.blobs)), func(ctx context.Context, _ int, sum digest.Digest) error {
		_, err := p.registry.PutBlob(ctx, p.repository, d.blobs[sum])
		return err
	})
	if err != nil {
		return err
	}
	if err := p.registry.PutManifest(ctx, p.repository, catalog.VersionTag(d.Channel, d.Version), d.body); err != nil {
		return err
	}
	if err := p.putSignature(ctx, catalog.SignatureTag(d.digest), d.payload, sigs...); err != nil {
		return err
	}
	if err := p.moveTag(ctx, d.Channel, d.body); err != nil {
		return err
	}
	is, err := p.registry.Head(ctx, p.repository, d.Channel)
	switch {
	case err != nil:
		return err
	case is != d.digest:
		return refuse(KindRaced, d.Channel, "another publisher has published at the same time, as %s", is)
	}
	return p.state.note(ctx, p.name, d.Channel, Version{Manifest: d.Manifest, Digest: d.digest}, true)
}

// readDir reads a directory of writeOut.
func (p *Publisher) readDir(ctx context.Context, dir string) (d signedDir, err error) {
	d.dir, d.blobs = dir, map[digest.Digest][]byte{}
	about, err := readAbout(dir)
	if err != nil {
		return d, err
	}
	if d.body, err = readFile(dir, manifestFile, catalog.MaxManifest); err != nil {
		return d, err
	}
	entries, err := os.ReadDir(filepath.Join(dir, blobsDir))
	if err != nil {
		return d, err
	}
	for _, entry := range entries {
		name := filepath.Join(blobsDir, entry.Name())
		data, err := readFile(dir, name, catalog.MaxManifest*2)
		if err != nil {
			return d, err
		}
		sum := digest.FromBytes(data)
		if sum.Encoded() != entry.Name() {
			return d, refuse(KindInput, filepath.Join(dir, name), "has digest %s", sum)
		}
		d.blobs[sum] = data
		p.cache.addBlob(sum, data) // its shards
	}
	if d.Manifest, err = p.decode(ctx, d.body); err != nil {
		return d, fmt.Errorf("%s: %w", filepath.Join(dir, manifestFile), err)
	}
	d.digest, d.head = digest.FromBytes(d.body), d.Previous
	if about.Head != "" {
		d.head = about.Head
	}
	if d.payload, err = readFile(dir, PayloadFile, maxSmall); err != nil {
		return d, err
	}
	want, err := payloadOf(p.name, d.digest)
	if err == nil && string(want) != string(d.payload) {
		err = refuse(KindInput, dir, "%s is not of its manifest, or not of %s", PayloadFile, p.name)
	}
	return d, err
}

// maxSmall bounds small files, in bytes.
const maxSmall = 64 << 10

// CatalogOf returns the catalog that a directory was written for.
func CatalogOf(dir string) (repository, name string, err error) {
	of, err := readAbout(dir)
	return of.Repository, of.Name, err
}

func readAbout(dir string) (of catalogOf, err error) {
	data, err := readFile(dir, catalogFile, maxSmall)
	if errors.Is(err, fs.ErrNotExist) {
		return of, &Error{Kind: KindInput, Object: dir, Text: "not a directory that --out wrote", Err: err}
	}
	if err != nil {
		return of, err
	}
	if err := json.Unmarshal(data, &of); err != nil {
		return of, &Error{Kind: KindInput, Object: dir, Text: catalogFile, Err: outside.Error(err)}
	}
	return of, nil
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
