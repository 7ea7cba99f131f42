// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/containerd/platforms"
	"github.com/distribution/reference"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
	"github.com/kubic-project/image-update-agent/internal/catalog"
	"github.com/kubic-project/image-update-agent/internal/catalog/ops"
	"github.com/kubic-project/image-update-agent/internal/catalog/store"
	"github.com/kubic-project/image-update-agent/internal/registry/ocimanifest"
	"github.com/kubic-project/image-update-agent/tags"
)

// Limits of a batch.
const (
	maxBatch = 200_000 // lines
	maxLine  = 4 << 10 // bytes
	maxRead  = 1 << 20 // bytes of a line that is too long, and that hides no other
	maxShown = 200     // bytes of a line in an error
)

// Wanted is an image to add.
type Wanted struct {
	Line  int // of a batch, from 1; 0: an argument
	Text  string
	Image Image
	Set   string
	// Advisory is what the image is good for; nil: nothing is said.
	Advisory *catalog.Advisory
	Err      error // why it names no image; nil: it does
}

// ParseBatch reads a batch: in each line REPOSITORY:TAG or REPOSITORY:TAG@DIGEST, and the name of
// a set, if it is in one. Lines that are empty or begin with # count for nothing. A line that is wrong comes with its
// error, and hides no other.
func ParseBatch(r io.Reader) ([]Wanted, error) {
	var all []Wanted
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxRead)
	number := 1
	for ; lines.Scan(); number++ {
		if number > maxBatch {
			return nil, refuse(KindInput, "batch", "more than %d lines", maxBatch)
		}
		if w := parseLine(lines.Text()); w.Text != "" {
			w.Line, w.Err = number, outside.Error(w.Err)
			all = append(all, w)
		}
	}
	switch err := lines.Err(); {
	case errors.Is(err, bufio.ErrTooLong): // most likely it is no text
		return nil, refuse(KindInput, "batch", "line %d: the line has more than %d bytes", number, maxRead)
	case err != nil:
		return nil, fmt.Errorf("batch: line %d: %w", number, err)
	}
	return all, nil
}

// parseLine reads a line: an image, and perhaps a set. One without any has no text.
func parseLine(line string) (w Wanted) {
	if len(line) > maxLine {
		w.Text = outside.Line(line, maxShown)
		w.Err = refuse(KindInput, w.Text, "the line has more than %d bytes", maxLine)
		return w
	}
	words := strings.Fields(strings.TrimPrefix(line, "\ufeff"))
	if len(words) == 0 || strings.HasPrefix(words[0], "#") {
		return w
	}
	w.Text = outside.Line(words[0], maxShown)
	w.Image, w.Err = ParseImage(words[0])
	switch {
	case w.Err != nil:
	case len(words) > 2:
		w.Err = refuse(KindInput, w.Text, "want an image and its set, and nothing after them")
	case len(words) == 2:
		w.Set = words[1]
		if err := catalog.CheckSet(w.Set); err != nil {
			w.Err = &Error{Kind: KindInput, Object: w.Text, Text: "not the name of a set", Err: err}
		}
	}
	return w
}

// Added checks all of these images in their registries, and returns the changes that add them. The
// error names all that are wrong.
func (p *Publisher) Added(ctx context.Context, wanted []Wanted, on []ocispec.Platform) ([]catalog.Change, error) {
	wanted, changes := slices.Clone(wanted), make([]catalog.Change, len(wanted))
	var done atomic.Int64
	err := each(ctx, p.jobs, wanted, func(ctx context.Context, n int, w Wanted) error {
		if w.Err != nil {
			return nil //nolint:nilerr // one bad image hides no other
		}
		r, err := p.Lookup(ctx, w.Image, on)
		r.Set, r.Advisory = w.Set, w.Advisory
		changes[n], wanted[n].Err = catalog.Change{Image: w.Image.Repository, Release: r}, err
		p.step("checked %d of %d images: %s", done.Add(1), len(wanted), w.Image)
		return ctx.Err()
	})
	if err != nil {
		return nil, err
	}
	byTag := map[string]Wanted{}
	var wrong []Wanted
	for _, w := range wanted {
		if other, twice := byTag[w.Image.String()]; w.Err == nil && twice && other.Set != w.Set {
			w.Err = refuse(KindInput, w.Image.String(),
				"given twice, in %s and in %s", ops.SetName(other.Set), ops.SetName(w.Set))
		}
		if w.Err != nil {
			wrong = append(wrong, w)
		}
		byTag[w.Image.String()] = w
	}
	slices.SortStableFunc(wrong, func(a, b Wanted) int { return a.Line - b.Line })
	return changes, wrongLines(wrong)
}

// Image is a release that a person names.
type Image struct {
	Repository string // normalised
	Tag        string
	Digest     digest.Digest // empty: the one that the tag names
}

// ParseImage reads REPOSITORY:TAG, or REPOSITORY:TAG@DIGEST.
func ParseImage(text string) (Image, error) {
	named, err := reference.ParseNormalizedNamed(text)
	if err == nil {
		err = store.CheckRepository(named.Name())
	}
	if err != nil {
		return Image{}, &Error{Kind: KindInput, Object: outside.Text(text), Text: "not an image", Err: outside.Error(err)}
	}
	image := Image{Repository: named.Name()}
	if tagged, ok := named.(reference.Tagged); ok {
		image.Tag = tagged.Tag()
	}
	if digested, ok := named.(reference.Digested); ok {
		image.Digest = digested.Digest()
	}
	if image.Tag == "" {
		return Image{}, refuse(KindInput, outside.Text(text), "the tag is missing: want REPOSITORY:TAG")
	}
	return image, nil
}

func (i Image) String() string { return i.Repository + ":" + i.Tag }

// Lookup checks an image in its registry: the tag is there and does not move, it names the given
// digest, and the image is for all of these platforms. It returns the release.
func (p *Publisher) Lookup(ctx context.Context, i Image, on []ocispec.Platform) (catalog.Release, error) {
	kind, body, err := p.registry.Manifest(ctx, i.Repository, i.Tag)
	d := digest.FromBytes(body)
	switch {
	case errors.Is(err, release.ErrNotFound):
		e := refuse(KindTag, i.String(), "the registry has no such tag")
		if list, err := p.imageTags(ctx, i.Repository); err == nil {
			e.Near = near(i.Tag, list)
		}
		return catalog.Release{}, e
	case err != nil:
		return catalog.Release{}, err
	case i.Digest != "" && i.Digest != d:
		return catalog.Release{}, refuse(KindDigest, i.String(), "the tag names %s, not %s", d, i.Digest)
	}
	if err := p.checkFloats(ctx, i, d); err != nil {
		return catalog.Release{}, err
	}
	top, err := ocimanifest.Parse(kind, body)
	if err != nil {
		return catalog.Release{}, fmt.Errorf("%s: %w", i, err)
	}
	r := catalog.Release{Tag: i.Tag, Digest: d}
	for _, platform := range on {
		build, err := p.describe(ctx, i, d, top, platform)
		if err != nil {
			return catalog.Release{}, err
		}
		r.Created = build.Created
	}
	again, err := p.registry.Head(ctx, i.Repository, i.Tag)
	if err != nil && !errors.Is(err, release.ErrNotFound) {
		return catalog.Release{}, err
	}
	if again != d {
		return catalog.Release{}, refuse(KindTag, i.String(), "the tag has moved while it was read: it named %s", d)
	}
	return r, nil
}

// describe reads the build of an image for a platform. top is its manifest or index.
func (p *Publisher) describe(
	ctx context.Context, i Image, d digest.Digest, top ocimanifest.Document, platform ocispec.Platform,
) (ocimanifest.Build, error) {
	content := ocimanifest.Content{
		Document: func(desc ocispec.Descriptor) (ocimanifest.Document, error) {
			if desc.Digest == d {
				return top, nil
			}
			kind, body, err := p.registry.Manifest(ctx, i.Repository, desc.Digest.String())
			if err != nil {
				return ocimanifest.Document{}, err
			}
			return ocimanifest.Parse(kind, body)
		},
		Config: func(desc ocispec.Descriptor) ([]byte, error) { return p.registry.Blob(ctx, i.Repository, desc) },
	}
	build, err := content.Describe(ocispec.Descriptor{Digest: d}, platforms.OnlyStrict(platform))
	switch {
	case errors.Is(err, ocimanifest.ErrPlatform):
		return build, refuse(KindPlatform, i.String(), "not for %s", platforms.Format(platform))
	case errors.Is(err, release.ErrNotFound):
		return build, &Error{Kind: KindTag, Object: i.String(), Text: "a part of the image is missing", Err: err}
	case err != nil:
		return build, fmt.Errorf("%s: %w", i, err)
	}
	return build, nil
}

// imageTags returns the tags of a repository of images. It asks once for all builds of an image.
func (p *Publisher) imageTags(ctx context.Context, repository string) ([]string, error) {
	list, err, _ := p.cache.listing.Do(repository, func() (any, error) {
		if known, ok := p.cache.tags.get(repository); ok {
			return known, nil
		}
		tags, err := p.registry.Tags(ctx, repository)
		if err == nil {
			p.cache.tags.put(repository, tags, 1, maxTagLists)
		}
		return tags, err
	})
	tags, _ := list.([]string)
	return tags, err
}

// floating are names of tags that name the newest build.
var floating = []string{
	"latest", "stable", "edge", "nightly", "main", "master", "trunk", "head", "tip", "develop", "devel", "development",
	"dev", "testing", "unstable", "canary", "rolling", "current", "next", "snapshot", "staging", "production", "prod",
	"stage", "release", "daily", "weekly", "newest", "lts", "mainline", "beta", "alpha", "preview", "rawhide",
	"tumbleweed",
}

// maxAliases is how many other tags of an image are asked for their digest.
const maxAliases = 8

// checkFloats refuses a tag that moves from build to build. Its form does not say so: v1.34.2 is a
// release of one image, and 4.0.0 the newest build of another. A name does, as in latest and
// latest-amd64, or a tag of the same image that says more: 4.0.0-rev1-build1.3 and 1.25.3 stay where
// 4.0.0 and 1.25 move on.
func (p *Publisher) checkFloats(ctx context.Context, i Image, d digest.Digest) error {
	if isFloatingName(i.Tag) {
		e := refuse(KindTag, i.String(), "%s moves to each new build: give the tag of one build", i.Tag)
		if longer, err := p.longerTag(ctx, i, d); err == nil && longer != "" {
			e.Near = []string{longer}
		}
		return e
	}
	longer, err := p.longerTag(ctx, i, d)
	if err != nil {
		return err
	}
	if longer != "" {
		e := refuse(KindTag, i.String(), "the tag moves to each new build: use %s, which names this one", longer)
		e.Near = []string{longer}
		return e
	}
	return nil
}

// architectures are digits in names of tags that say nothing of a build.
var architectures = strings.NewReplacer("amd64", "", "arm64", "", "x86_64", "", "aarch64", "", "386", "",
	"armv7", "", "s390x", "", "ppc64le", "", "riscv64", "")

// isFloatingName reports whether a tag names the newest build, also with a variant behind it, as in
// latest-alpine. With digits behind it, it names a build: main-20240115.
func isFloatingName(tag string) bool {
	name, variant, _ := strings.Cut(strings.ToLower(tag), "-")
	return slices.Contains(floating, name) && !strings.ContainsAny(architectures.Replace(variant), "0123456789")
}

// longerTag returns a longer tag of the same image that extends a tag; "": there is none.
func (p *Publisher) longerTag(ctx context.Context, i Image, d digest.Digest) (string, error) {
	list, err := p.imageTags(ctx, i.Repository)
	if err != nil {
		return "", err
	}
	var longer []string
	for _, tag := range list {
		if saysMore(tag, i.Tag) {
			longer = append(longer, tag)
		}
	}
	slices.SortFunc(longer, func(a, b string) int {
		x, errX := tags.Parse(a)
		y, errY := tags.Parse(b)
		if errX == nil && errY == nil {
			return tags.Compare(y, x)
		}
		return strings.Compare(b, a)
	})
	for _, tag := range longer[:min(len(longer), maxAliases)] {
		is, err := p.registry.Head(ctx, i.Repository, tag)
		if errors.Is(err, release.ErrNotFound) {
			continue
		}
		if err != nil {
			return "", err
		}
		if is == d {
			return tag, nil
		}
	}
	return "", nil
}

// saysMore reports whether a tag names one of the builds that another one may name: a build or a
// revision of a version, or a version with more components.
func saysMore(tag, of string) bool {
	t, err := tags.Parse(tag)
	isBuild := err == nil && (t.Form() == tags.Intermediate || t.Form() == tags.Long)
	if isFloatingName(of) {
		return isBuild
	}
	if strings.HasPrefix(tag, of+"-rev") || strings.HasPrefix(tag, of+"-build") {
		return isBuild
	}
	version, variant, _ := strings.Cut(of, "-")
	longer, of, _ := strings.Cut(tag, "-")
	more, is := strings.CutPrefix(longer, version+".")
	isNumber := func(text string) bool { return text != "" && strings.Trim(text, "0123456789.") == "" }
	return is && variant == of && isNumber(more) && isNumber(strings.TrimPrefix(version, "v"))
}
