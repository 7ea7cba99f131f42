// SPDX-License-Identifier: Apache-2.0

package podfiles

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/base/nodefile"
	"github.com/kubic-project/image-update-agent/tags"
)

// maxTagFile limits one tag file, in bytes: it has a name and a few tags.
const maxTagFile = 64 << 10

// maxProblems limits the problems that TagFiles reports for one directory.
const maxProblems = 32

// TagFiles reads the tags that image packages have installed, as values for the placeholder __TAG__: the tag by
// repository, as the package names it ("sles12/velum"). Missing directories are skipped; the first directory with a
// repository wins. It reads two kinds of files:
//
//   - NAME.metadata (JSON with name and tags) next to NAME.tag (the tag itself),
//     of the packages below /usr/share/suse-docker-images/native;
//   - NAME-metadata (JSON, tags by repository), which containermetadata-rpm
//     writes to /usr/share/suse-containermetadata-images.
//
// Of several tags in a file it takes the intermediate one, for pod manifests to follow; else the long one, the short
// one, or one of another scheme except "latest"; the newest of each kind. Of several files of one directory, the newest
// tag wins. A broken file is reported and does not affect others.
func TagFiles(ctx context.Context, dirs []string) (values map[string]string, problems []error) {
	values = map[string]string{}
	for _, path := range dirs {
		d := tagDir{found: map[string]string{}}
		if err := d.read(ctx, path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			d.report(err)
		}
		maps.Copy(d.found, values)
		values = d.found
		for _, err := range d.problems {
			problems = append(problems, fmt.Errorf("podfiles: tag files: %w", err))
		}
	}
	return values, problems
}

// tagDir reads one directory.
type tagDir struct {
	dir      *nodefile.Dir
	path     string
	found    map[string]string
	problems []error
}

func (d *tagDir) report(err error) {
	switch len(d.problems) {
	case maxProblems:
	case maxProblems - 1:
		d.problems = append(d.problems, fmt.Errorf("%s: more problems of this kind", d.path))
	default:
		d.problems = append(d.problems, err)
	}
}

func (d *tagDir) read(ctx context.Context, path string) error {
	dir, err := nodefile.OpenDir(path)
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
	names, err := dir.List()
	if err != nil {
		return err
	}
	d.dir, d.path = dir, path
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			return err
		}
		found, err := d.file(name, names)
		if err != nil {
			d.report(err)
		}
		for repository, tag := range found {
			d.add(repository, tag)
		}
	}
	return nil
}

// file reads one file, if it is of a known kind.
func (d *tagDir) file(name string, names []string) (map[string]string, error) {
	var parse func([]byte) (map[string]string, error)
	base, native := strings.CutSuffix(name, ".metadata")
	switch {
	case native:
		tag, err := d.dir.Read(base+".tag", maxTagFile)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		parse = func(data []byte) (map[string]string, error) { return parseNative(data, string(tag.Data)) }
	case strings.HasSuffix(name, "-metadata"):
		parse = parseMetadata
	case strings.HasSuffix(name, ".tag") && !slices.Contains(names, strings.TrimSuffix(name, ".tag")+".metadata"):
		return nil, fmt.Errorf("%s: no .metadata file names its image", filepath.Join(d.path, name))
	default:
		return nil, nil
	}
	file, err := d.dir.Read(name, maxTagFile)
	if err != nil {
		return nil, err
	}
	found, err := parse(file.Data)
	if err != nil {
		err = fmt.Errorf("%s: %w", filepath.Join(d.path, name), err)
	}
	return found, err
}

// add keeps the newer of two tags, or the first if they cannot be ordered.
func (d *tagDir) add(repository, tag string) {
	if old, there := d.found[repository]; !there || newer(old, tag) {
		d.found[repository] = tag
	}
}

// nativeImage is an image in container-feeder's .metadata files.
type nativeImage struct {
	Name string   `json:"name"`
	Tags []string `json:"tags"`
}

// parseNative reads a .metadata file, with its fields at the top or below "image". The
// text of the .tag file wins, unless it is empty.
func parseNative(data []byte, tag string) (map[string]string, error) {
	var meta struct {
		nativeImage
		Image nativeImage `json:"image"`
	}
	if err := json.Unmarshal(data, &meta); err != nil {
		return nil, err
	}
	image := meta.nativeImage
	if image.Name == "" {
		image = meta.Image
	}
	if tag = strings.TrimSpace(tag); tag != "" {
		image.Tags = []string{tag}
	}
	return value(image.Name, image.Tags)
}

// parseMetadata parses a -metadata file: {"repository": ["tag", ...]}. It returns valid entries together with the
// errors of others.
func parseMetadata(data []byte) (map[string]string, error) {
	var meta map[string][]string
	if err := json.Unmarshal(data, &meta); err != nil {
		return nil, err
	}
	found := map[string]string{}
	var errs []error
	for _, repository := range slices.Sorted(maps.Keys(meta)) {
		one, err := value(repository, meta[repository])
		if err != nil && len(errs) < maxProblems {
			errs = append(errs, err)
		}
		maps.Copy(found, one)
	}
	return found, errors.Join(errs...)
}

// maxRepository is the OCI distribution specification's recommended maximum length of host and name together, in bytes.
const maxRepository = 255

func value(repository string, choice []string) (map[string]string, error) {
	if len(repository) > maxRepository {
		return nil, fmt.Errorf("repository %.64q: longer than %d bytes", repository, maxRepository)
	}
	if _, err := release.NormalizeRepository(repository); err != nil {
		return nil, err
	}
	tag, err := choose(choice)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", repository, err)
	}
	return map[string]string{repository: tag}, nil
}

// preference orders the classes of tags, the best last; others are not usable.
var preference = []tags.Class{
	tags.ClassUnrecognized, tags.ClassSingle, tags.ClassShort, tags.ClassLong, tags.ClassIntermediate,
}

// choose returns the tag for pod manifests to follow.
func choose(choice []string) (string, error) {
	best, rank := "", -1
	for _, text := range choice {
		r := slices.Index(preference, tags.Classify(text))
		if r < 0 || text == "latest" || release.IsPlaceholder(text) {
			continue
		}
		if r > rank || r == rank && newer(best, text) {
			best, rank = text, r
		}
	}
	if best == "" {
		return "", fmt.Errorf("no usable tag in %.128q", choice[:min(len(choice), 8)])
	}
	return best, nil
}

// newer reports whether b is above a, if both can be ordered.
func newer(a, b string) bool {
	x, errA := tags.Parse(a)
	y, errB := tags.Parse(b)
	return errA == nil && errB == nil && tags.Compare(x, y) < 0
}
