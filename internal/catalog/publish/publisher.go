// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sync/errgroup"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/catalog"
	"github.com/kubic-project/image-update-agent/internal/catalog/store"
	"github.com/kubic-project/image-update-agent/internal/outside"
	"github.com/kubic-project/image-update-agent/internal/signature"
)

// maxBy bounds the name of who publishes and the URL of the CI job, in bytes.
const maxBy = 256

// jobs is how many requests run at once.
const jobs = 8

// Options configure a Publisher.
type Options struct {
	Repository string // of the catalog
	// Name is the repository that nodes know the catalog as; empty: Repository.
	Name    string
	Keys    []*Key   // each signs each version, the first one also ops; none: nothing is signed
	Trusted [][]byte // public keys in PEM, besides those of Keys
	Require int      // how many of the trusted keys must have signed a version; 0: one
	// AcceptUnsigned lets a publisher build on a version that is not signed.
	AcceptUnsigned bool
	// State is a file that keeps the highest version of each channel; empty: no file.
	State string
	// By names who publishes, Run is the URL of the CI job: ops and the channel's log have both. Empty: not known.
	By, Run string
	Store   store.Options
	Now     func() time.Time // nil: time.Now
	// Progress, if set, is called before each step, from any goroutine.
	Progress func(step string)
}

// Publisher acts on one catalog. It is safe for concurrent use.
type Publisher struct {
	client     *store.Client
	repository string
	name       string
	keys       []*Key
	verifier   *signature.Verifier // nil: there are no keys
	require    int                 // how many of them must have signed
	unsigned   bool                // AcceptUnsigned
	by, run    string
	now        func() time.Time
	progress   func(string)
	cache      cache
	seen       seenFile
}

// New returns a publisher. It sends no request.
func New(o Options) (*Publisher, error) {
	repository, err := release.NormalizeRepository(o.Repository)
	if err == nil {
		err = store.CheckRepository(repository)
	}
	if err != nil {
		return nil, &Error{Kind: KindInput, Object: "catalog", Text: "want a repository", Err: err}
	}
	known := repository
	if o.Name != "" {
		if known, err = release.NormalizeRepository(o.Name); err != nil {
			return nil, &Error{Kind: KindInput, Object: "name", Text: "want a repository", Err: err}
		}
	}
	if err := checkEnough(o); err != nil {
		return nil, err
	}
	c, err := store.New(o.Store)
	if err != nil {
		return nil, err
	}
	p := &Publisher{
		client: c, repository: repository, name: known, keys: o.Keys, require: o.Require, unsigned: o.AcceptUnsigned,
		by: outside.Line(o.By, maxBy), run: outside.Line(o.Run, maxBy),
		now: o.Now, progress: o.Progress, seen: seenFile{o.State},
	}
	if p.now == nil {
		p.now = time.Now
	}
	if p.progress == nil {
		p.progress = func(string) {}
	}
	trusted := slices.Clone(o.Trusted)
	for _, k := range o.Keys {
		trusted = append(trusted, k.public)
	}
	if len(trusted) > 0 {
		p.verifier, err = signature.WithKeys(o.Require, trusted...)
	}
	return p, err
}

// checkEnough refuses keys that are too few for the version that they sign: the publisher would refuse it, as nodes do.
func checkEnough(o Options) error {
	different := map[string]bool{}
	for _, k := range o.Keys {
		different[string(k.public)] = true
	}
	if n := len(different); n > 0 && n < o.Require {
		return refuse(KindInput, "require",
			"too few keys sign the next version: %d, want %d: use --key for each, or --out DIR", n, o.Require)
	}
	return nil
}

// verify returns the key that signed a version, the first one if several must have.
func (p *Publisher) verify(ctx context.Context, d digest.Digest) (key string, err error) {
	verdict, err := p.verifier.Verify(ctx, own{p.client, p.repository}, p.name, d, "")
	if err != nil {
		return "", err
	}
	return verdict.Keys[0], nil
}

// Name is the repository that nodes know the catalog as.
func (p *Publisher) Name() string { return p.name }

// step reports the next step.
func (p *Publisher) step(format string, args ...any) { p.progress(fmt.Sprintf(format, args...)) }

// Version is one version of a channel in the registry. The zero value is no version.
type Version struct {
	catalog.Manifest
	Digest   digest.Digest
	SignedBy string // fingerprint of the key; empty: not signed by a trusted one, or there are no keys
}

// Read returns the newest version of a channel. Its error has KindChannel where there is no such
// channel; with keys, KindUnsigned where it has no valid signature.
func (p *Publisher) Read(ctx context.Context, channel string) (Version, error) {
	if err := CheckChannel(channel); err != nil {
		return Version{}, err
	}
	p.step("reading %s", channel)
	v, err := p.read(ctx, channel)
	if errors.Is(err, release.ErrNotFound) {
		return Version{}, p.noChannel(ctx, channel)
	}
	if err == nil && (v.Channel != channel || v.Name != p.name) {
		err = refuse(KindRaced, channel, "it was published as channel %s of %s", v.Channel, v.Name)
	}
	if err == nil {
		err = p.remember(ctx, v)
	}
	return v, err
}

// CheckChannel checks the name of a channel. Its error has KindInput.
func CheckChannel(name string) error {
	err := catalog.CheckChannel(name)
	switch {
	case err == nil:
		return nil
	case isVersion(name):
		return refuse(KindInput, name, "want a channel without a version")
	case strings.ContainsAny(name, ":/@"):
		return refuse(KindInput, name, "not the name of a channel: the channel comes before images")
	}
	return &Error{Kind: KindInput, Object: name, Text: "not the name of a channel", Err: err}
}

// isVersion reports whether a word is CHANNEL@VERSION.
func isVersion(word string) bool {
	channel, number, _ := strings.Cut(word, "@")
	_, err := strconv.ParseUint(number, 10, 64)
	return err == nil && catalog.CheckChannel(channel) == nil
}

// noChannel returns the error for a channel that is not there, with those that are.
func (p *Publisher) noChannel(ctx context.Context, channel string) error {
	channels, err := p.Channels(ctx)
	if err != nil {
		return err
	}
	e := refuse(KindChannel, channel, "%s has no such channel", p.repository)
	if e.Near = near(channel, channels); len(e.Near) == 0 && len(channels) > 0 {
		e.Text += ", only " + some(channels)
	}
	return e
}

// Channels lists the channels, sorted.
func (p *Publisher) Channels(ctx context.Context) ([]string, error) {
	tags, err := p.client.Tags(ctx, p.repository)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, tag := range tags {
		if catalog.CheckChannel(tag) == nil {
			out = append(out, tag)
		}
	}
	slices.Sort(out)
	return out, nil
}

// ExistingChannels is Channels, with an error of KindChannel where there is none.
func (p *Publisher) ExistingChannels(ctx context.Context) ([]string, error) {
	channels, err := p.Channels(ctx)
	if err == nil && len(channels) == 0 {
		err = refuse(KindChannel, p.repository, "the catalog has no channel")
	}
	return channels, err
}

// read returns the version of a tag or digest.
func (p *Publisher) read(ctx context.Context, tagOrDigest string) (Version, error) {
	_, body, err := p.client.Manifest(ctx, p.repository, tagOrDigest)
	if err != nil {
		return Version{}, err
	}
	v := Version{Digest: digest.FromBytes(body)}
	if known, ok := p.cache.version(v.Digest); ok {
		return known, nil
	}
	if isProbe(tagOrDigest, v.Digest) {
		return Version{}, fmt.Errorf("%s: %w", tagOrDigest, release.ErrNotFound)
	}
	if p.verifier != nil {
		key, err := p.verify(ctx, v.Digest)
		isUnsigned := errors.Is(err, signature.ErrUnsigned)
		switch {
		case isUnsigned && p.unsigned:
		case isUnsigned, errors.Is(err, signature.ErrWrong):
			return Version{}, &Error{Kind: KindUnsigned, Object: tagOrDigest, Text: "no valid signature", Err: err}
		case err != nil:
			return Version{}, fmt.Errorf("%s: %w", tagOrDigest, err)
		}
		v.SignedBy = key
	}
	v.Manifest, err = catalog.DecodeManifest(body)
	if err == nil {
		err = p.join(ctx, &v.Manifest)
	}
	if err != nil {
		return Version{}, fmt.Errorf("%s: %w", tagOrDigest, err)
	}
	p.cache.addVersion(v)
	return v, nil
}

// join reads the shards of a manifest.
func (p *Publisher) join(ctx context.Context, m *catalog.Manifest) error {
	if len(m.Shards) == 0 {
		return nil
	}
	shards := make([][]catalog.PageRef, len(m.Shards))
	err := each(ctx, m.Shards, func(ctx context.Context, n int, ref catalog.ShardRef) error {
		data, err := p.blob(ctx, ref.Digest, ref.Size)
		if err == nil {
			shards[n], err = catalog.DecodeShard(data, ref)
		}
		return err
	})
	if err != nil {
		return err
	}
	return m.Join(shards...)
}

// blob returns a blob of the catalog.
func (p *Publisher) blob(ctx context.Context, d digest.Digest, size int64) ([]byte, error) {
	if data, ok := p.cache.blob(d); ok {
		return data, nil
	}
	data, err := p.client.Blob(ctx, p.repository, ocispec.Descriptor{Digest: d, Size: size})
	if err == nil {
		p.cache.addBlob(d, data)
	}
	return data, err
}

// own has the catalog's signatures fetched from its repository, whatever name it is known by.
type own struct {
	*store.Client
	repository string
}

func (o own) Manifest(ctx context.Context, _, tagOrDigest string) (mediaType string, body []byte, err error) {
	return o.Client.Manifest(ctx, o.repository, tagOrDigest)
}

func (o own) Blob(ctx context.Context, _ string, desc ocispec.Descriptor) ([]byte, error) {
	return o.Client.Blob(ctx, o.repository, desc)
}

// checkMayWrite returns KindSigned if a channel is signed and there is no key.
func (p *Publisher) checkMayWrite(ctx context.Context, v Version) error {
	if len(p.keys) > 0 || v.Digest == "" {
		return nil
	}
	switch _, err := p.client.Head(ctx, p.repository, catalog.SignatureTag(v.Digest)); {
	case errors.Is(err, release.ErrNotFound):
		return nil
	case err != nil:
		return err
	}
	return refuse(KindSigned, v.Channel, "the channel is signed, and no key was given to sign the next version")
}

// Pages returns the pages of these images of a version, or of all images if none are named. It leaves out images that
// the version does not list.
func (p *Publisher) Pages(ctx context.Context, v Version, images ...string) (map[string]catalog.Page, error) {
	refs := v.Pages
	if images != nil {
		refs = nil
		for _, image := range images {
			if ref, ok := v.Page(image); ok {
				refs = append(refs, ref)
			}
		}
	}
	pages := make([]catalog.Page, len(refs))
	err := each(ctx, refs, func(ctx context.Context, n int, ref catalog.PageRef) error {
		data, err := p.blob(ctx, ref.Digest, ref.Size)
		if err == nil {
			pages[n], err = catalog.DecodePage(data, ref)
		}
		if err != nil {
			return fmt.Errorf("page of %s: %w", ref.Image, err)
		}
		return nil
	})
	out := map[string]catalog.Page{}
	for n, ref := range refs {
		out[ref.Image] = pages[n]
	}
	return out, err
}

// each calls do for all items, several at a time, until one fails.
func each[T any](ctx context.Context, items []T, do func(ctx context.Context, n int, item T) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(jobs)
	for n, item := range items {
		if ctx.Err() != nil {
			break
		}
		g.Go(func() error { return do(ctx, n, item) })
	}
	return g.Wait()
}

// FindImage returns the image that a person means: the whole repository, or the end of one.
func FindImage(v Version, word string) (string, error) {
	var all, ends []string
	if whole, err := release.NormalizeRepository(word); err == nil {
		if _, ok := v.Page(whole); ok {
			return whole, nil
		}
	}
	for _, p := range v.Pages {
		all = append(all, p.Image)
		if strings.HasSuffix(p.Image, "/"+word) {
			ends = append(ends, p.Image)
		}
	}
	switch len(ends) {
	case 1:
		return ends[0], nil
	case 0:
		e := refuse(KindImage, word, "channel %s lists no such image", v.Channel)
		e.Near = nearImage(word, all)
		return "", e
	}
	e := refuse(KindImage, word, "channel %s lists %d such images", v.Channel, len(ends))
	e.Near = ends[:min(len(ends), 4)]
	return "", e
}

// nearImage compares a word with as much of each image's end.
func nearImage(word string, images []string) []string {
	parts := strings.Count(word, "/") + 1
	whole := map[string]string{}
	var ends []string
	for _, image := range images {
		all := strings.Split(image, "/")
		end := strings.Join(all[max(0, len(all)-parts):], "/")
		whole[end] = image
		ends = append(ends, end)
	}
	var out []string
	for _, end := range near(word, ends) {
		out = append(out, whole[end])
	}
	return out
}
