// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/tags"
)

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
		e := refuse(KindTag, i.String(), "%s names the newest build, and moves with each: want the tag of one", i.Tag)
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
		e := refuse(KindTag, i.String(), "the tag moves with each build: %s is the same image, and says which", longer)
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
