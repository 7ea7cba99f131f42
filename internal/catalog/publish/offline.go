// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
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
	opsDir       = "ops" // the ops that the version folds, by their tags
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
	for _, op := range d.ops {
		if files[filepath.Join(opsDir, op.Tag)], err = op.Encode(); err != nil {
			return "", err
		}
	}
	return sum, writeDir(dir, files)
}

// writeDir makes a directory with files: all of them, or no directory.
func writeDir(dir string, files map[string][]byte) error {
	dir = filepath.Clean(dir)
	// No name that somebody else may have used.
	temporary := filepath.Join(filepath.Dir(dir), "."+filepath.Base(dir)+"."+rand.Text())
	err := errors.Join(
		os.MkdirAll(filepath.Join(temporary, blobsDir), 0o755), os.MkdirAll(filepath.Join(temporary, opsDir), 0o755))
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
	ops           []catalog.Op // in their order
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
	got, next := Result{Channel: d.Channel}, Version{Manifest: d.Manifest, Digest: d.digest}
	is, err := p.head(ctx, d.Channel)
	switch {
	case err != nil:
		return Result{}, err
	case is == d.digest:
		return got.at(next), nil
	case is != d.head:
		return Result{}, refuse(KindRaced, dir, "made for version %d of %s, which has changed since: %s",
			d.Version-1, d.Channel, is)
	}
	before, err := p.before(ctx, d, k)
	if err == nil {
		err = p.explain(ctx, &got, d, before)
	}
	if err == nil {
		err = p.checkLatest(ctx, d, k)
	}
	if err != nil {
		return Result{}, err
	}
	got.Changed = true
	if dryRun {
		return got.at(Version{Manifest: d.Manifest}), nil
	}
	return got.at(next), p.publishSigned(ctx, d, before, encoded...)
}

// before returns the channel without the version of a directory.
func (p *Publisher) before(ctx context.Context, d signedDir, k keys) (v *View, err error) {
	v = &View{p: p, keys: k, head: d.head}
	if d.Previous != "" {
		v.Version, err = p.read(ctx, d.Previous.String(), d.Channel, k)
	}
	if v.Channel = d.Channel; err == nil {
		v.merged, err = p.mergedOps(ctx, v.Version)
	}
	return v, err
}

// explain names what a version changes: each release, each op, and what it leaves out of the version that the channel
// names. It refuses a version that is not what its ops make of the version before.
func (p *Publisher) explain(ctx context.Context, got *Result, d signedDir, before *View) error {
	next := Version{Manifest: d.Manifest, Digest: d.digest}
	log, err := p.entries(ctx, next)
	if err != nil {
		return err
	}
	got.Others = othersOf(log[max(0, len(log)-len(d.ops)):], nil)
	was, err := before.published(ctx, imagesOf(d.ops...)...)
	if err != nil {
		return err
	}
	is, _ := ops.Fold(was, d.ops...)
	if err := p.checkFolded(ctx, d, before, is, log); err != nil {
		const text = "not a version that this image-catalog writes with --out"
		return &Error{Kind: KindInput, Object: d.dir, Text: text, Err: err}
	}
	named := membersOf(d.ops)
	for _, image := range slices.Sorted(maps.Keys(is.Pages)) {
		got.Outcomes = append(got.Outcomes, changesOf(was.Pages[image], is.Pages[image], named)...)
	}
	if d.head == d.Previous {
		return nil
	}
	tags, err := p.registry.Tags(ctx, p.repository)
	if err != nil {
		return err
	}
	pages := func(ctx context.Context, images ...string) (map[string]catalog.Page, error) {
		return p.Pages(ctx, next, images...)
	}
	left, err := p.leftOut(ctx, before.Version, d.head, tags, pages)
	got.Outcomes = slices.Concat(got.Outcomes, left)
	return err
}

// checkFolded checks that a version is what its ops make of the version before, that its log is that of the version
// before with its ops behind it, that its list of ops has them and no other new ones, and that there are numbers left
// for the next versions.
func (p *Publisher) checkFolded(
	ctx context.Context, d signedDir, before *View, is ops.State, log []catalog.Entry,
) error {
	if d.Version-before.Version.Version >= catalog.MaxJump {
		return fmt.Errorf("version %d is too far above version %d", d.Version, before.Version.Version)
	}
	own := draft{view: before, manifest: d.Manifest, blobs: map[digest.Digest][]byte{}, ops: d.ops}
	own.manifest.Name = p.name
	upcoming, _ := ops.Fold(ops.State{Times: before.Times}, onlyOf(d.ops, nil)...) // the end of a freeze may be among them
	upcoming.Turn = before.Turn
	for _, op := range d.ops {
		if why := ops.Refusal(upcoming.Times, op, p.now()); why != "" {
			return fmt.Errorf("%s: %s", op.Tag, why)
		}
		if op.Name != p.name || op.Channel != d.Channel {
			return fmt.Errorf("%s is for channel %s of %s", op.Tag, op.Channel, op.Name)
		}
	}
	if err := p.fill(&own, is); err != nil {
		return err
	}
	has, want := Version{Manifest: d.Manifest}, Version{Manifest: own.manifest}
	if images := slices.Concat(notIn(has, want), notIn(want, has)); len(images) > 0 {
		return fmt.Errorf("the page of %s is not what the ops make of version %d", images[0], before.Version.Version)
	}
	if _, sum, err := own.manifest.Encode(); err != nil || sum != d.digest {
		return errors.Join(err, fmt.Errorf("not what the ops make of version %d", before.Version.Version))
	}
	listed, err := p.mergedOps(ctx, has)
	for _, op := range listed {
		if !is.IsMerged(op) {
			return fmt.Errorf("lists %s as published, but has no such op", op)
		}
	}
	for _, op := range d.ops {
		if !slices.Contains(listed, op.Tag) {
			return fmt.Errorf("its list of ops lacks %s", op.Tag)
		}
	}
	if err != nil {
		return err
	}
	earlier, err := p.entries(ctx, before.Version)
	if err != nil {
		return err
	}
	return checkLogged(own, earlier, log)
}

// checkLogged checks that a log is an earlier one with the entries of a version's ops behind it. A log of the most
// parts may have lost its beginning. Which keys have signed the ops only the log says.
func checkLogged(d draft, earlier, log []catalog.Entry) error {
	at := len(log) - len(d.ops)
	lost := len(earlier) - at
	if at < 0 || lost < 0 || lost > 0 && len(d.manifest.Log) < catalog.MaxLogParts ||
		!slices.EqualFunc(earlier[lost:], log[:at], func(a, b catalog.Entry) bool { return reflect.DeepEqual(a, b) }) {
		return errors.New("its log is not that of the version before, with its ops")
	}
	added := slices.Clone(log[at:])
	for n := range added {
		added[n].Key, added[n].Keys = "", nil
	}
	has, err := catalog.NewLog(added...)
	want, errWant := catalog.NewLog(d.entries()...)
	if err = errors.Join(err, errWant); err == nil && !bytes.Equal(slices.Concat(has...), slices.Concat(want...)) {
		err = errors.New("the log differs from the ops")
	}
	return err
}

const dropped = "older than the releases that the page keeps"

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

// membersOf returns the releases that ops name.
func membersOf(all []catalog.Op) map[string]bool {
	out := map[string]bool{}
	for _, op := range all {
		for _, c := range op.Changes {
			out[c.Member()] = true
		}
	}
	return out
}

// changesOf returns how the releases that ops name differ between two pages of an image, and what the page drops.
func changesOf(before, after catalog.Page, named map[string]bool) (out []Outcome) {
	for _, is := range after.Releases {
		was := ops.Find(before, is.Tag)
		if !named[catalog.Member(after.Image, is.Tag)] || was != nil && ops.IsSame(*was, is) {
			continue
		}
		o := Outcome{Image: after.Image, Tag: is.Tag, Digest: is.Digest, Changed: true, Withdrawn: is.Withdrawn != nil}
		o.Note, o.Steered = changeNote(was, is)
		out = append(out, o)
	}
	for _, was := range before.Releases {
		if ops.Find(after, was.Tag) == nil {
			out = append(out, Outcome{Image: after.Image, Tag: was.Tag, Digest: was.Digest, Note: dropped})
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
func (p *Publisher) publishSigned(ctx context.Context, d signedDir, before *View, sigs ...string) error {
	if d.head == "" {
		if err := p.checkMovable(ctx, d.Channel); err != nil {
			return err
		}
	}
	if err := p.publish(ctx, draft{view: before, manifest: d.Manifest, blobs: d.blobs}, sigs...); err != nil {
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
	if d.body, err = ReadFile(filepath.Join(dir, manifestFile), catalog.MaxManifest); err != nil {
		return d, err
	}
	entries, err := os.ReadDir(filepath.Join(dir, blobsDir))
	if err != nil {
		return d, err
	}
	for _, entry := range entries {
		name := filepath.Join(blobsDir, entry.Name())
		data, err := ReadFile(filepath.Join(dir, name), catalog.MaxManifest*2)
		if err != nil {
			return d, err
		}
		sum := digest.FromBytes(data)
		if sum.Encoded() != entry.Name() {
			return d, refuse(KindInput, filepath.Join(dir, name), "has digest %s", sum)
		}
		d.blobs[sum] = data
		p.cache.own.put(sum, data, 0, 0)
	}
	if d.ops, err = readDirOps(dir); err != nil {
		return d, err
	}
	if d.Manifest, err = p.decode(ctx, d.body); err != nil {
		return d, fmt.Errorf("%s: %w", filepath.Join(dir, manifestFile), err)
	}
	d.digest, d.head = digest.FromBytes(d.body), d.Previous
	if about.Head != "" {
		d.head = about.Head
	}
	if d.payload, err = ReadFile(filepath.Join(dir, PayloadFile), maxSmall); err != nil {
		return d, err
	}
	want, err := payloadOf(p.name, d.digest)
	if err == nil && string(want) != string(d.payload) {
		err = refuse(KindInput, dir, "%s is not of its manifest, or not of %s", PayloadFile, p.name)
	}
	return d, err
}

// readDirOps reads the ops of a directory, in their order.
func readDirOps(dir string) ([]catalog.Op, error) {
	dir = filepath.Join(dir, opsDir)
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // Git keeps no empty directory, and a version may have no op
		return nil, err
	}
	out := make([]catalog.Op, len(entries))
	for n, entry := range entries {
		data, err := ReadFile(filepath.Join(dir, entry.Name()), catalog.MaxOp)
		if err != nil {
			return nil, err
		}
		if out[n], err = catalog.DecodeOp(entry.Name(), data); err != nil {
			return nil, &Error{Kind: KindInput, Object: filepath.Join(dir, entry.Name()), Text: "not an op", Err: err}
		}
	}
	slices.SortFunc(out, func(a, b catalog.Op) int { return a.Mark().Compare(b.Mark()) })
	return out, nil
}

// maxSmall bounds small files, in bytes.
const maxSmall = 64 << 10

// CatalogOf returns the catalog that a directory was written for.
func CatalogOf(dir string) (repository, name string, err error) {
	of, err := readAbout(dir)
	return of.Repository, of.Name, err
}

func readAbout(dir string) (of catalogOf, err error) {
	data, err := ReadFile(filepath.Join(dir, catalogFile), maxSmall)
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

// ReadFile reads a file of at most so many bytes, which may be a FIFO.
func ReadFile(name string, limit int64) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := outside.ReadAll(f, limit)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return data, nil
}
