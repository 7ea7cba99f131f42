// SPDX-License-Identifier: Apache-2.0

package filerender

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/kubic-project/image-update-agent/internal/node/config"
	"github.com/kubic-project/image-update-agent/manifests"
	"github.com/kubic-project/image-update-agent/tags"
)

// repository is a repository in the files of `manifests render`.
type repository struct{ written, rewritten string }

// repositories are those of all files, without duplicates.
type repositories []repository

// add adds the images that kubelet would pull, and ignores texts that only mention one.
func (r *repositories) add(images []manifests.Image, rewrites []manifests.Rewrite) {
	for _, img := range images {
		name := manifests.SplitReference(img.Reference).Name
		found := repository{name, manifests.Rewritten(name, rewrites)}
		if isPulled(img) && name != "" && !slices.Contains(*r, found) {
			*r = append(*r, found)
		}
	}
}

// isPulled reports whether kubelet would pull an image.
func isPulled(img manifests.Image) bool {
	return img.Document == 0 && img.Kind != manifests.KindArgument && img.Kind != manifests.KindEnvironment
}

// setting is one --set.
type setting struct{ key, tag string }

func parseSets(all []string) ([]setting, error) {
	var sets []setting
	for _, s := range all {
		key, tag, ok := strings.Cut(s, "=")
		if !ok || key == "" || tag == "" {
			return nil, fmt.Errorf("--set %q: want REPOSITORY=TAG", s)
		}
		if _, err := tags.Parse(tag); errors.Is(err, tags.ErrInvalid) {
			return nil, fmt.Errorf("--set %q: %w: %s", s, tags.ErrInvalid, tags.Reason(err))
		}
		sets = append(sets, setting{key, tag})
	}
	return sets, nil
}

// choose returns the tag of each repository, by its written name. A setting that matches nothing, or several
// repositories, is an error.
func (r repositories) choose(sets []setting, rewrites []manifests.Rewrite) (map[string]string, error) {
	tagOf, by := map[string]string{}, map[string]string{}
	var errs []error
	for _, rewrite := range rewrites {
		if !slices.ContainsFunc(r, func(r repository) bool { return r.under(rewrite.From) || r.under(rewrite.To) }) {
			errs = append(errs, fmt.Errorf("--rewrite %s=%s: matches no image%s",
				rewrite.From, rewrite.To, r.meant(rewrite.From, false)))
		}
	}
	for _, set := range sets {
		found, err := r.find(set.key)
		if err != nil {
			errs = append(errs, fmt.Errorf("--set %s=%s: %w", set.key, set.tag, err))
		}
		for _, name := range found {
			if other, twice := by[name]; twice && tagOf[name] != set.tag {
				errs = append(errs, fmt.Errorf("--set %s=%s: %s already has its tag from --set %s=%s",
					set.key, set.tag, name, other, tagOf[name]))
			}
			tagOf[name], by[name] = set.tag, set.key
		}
	}
	return tagOf, errors.Join(errs...)
}

// find returns all written names of the repository that a key names.
func (r repositories) find(key string) ([]string, error) {
	for _, fits := range []func(name string) bool{
		func(name string) bool { return name == key },
		func(name string) bool { return strings.HasSuffix(name, "/"+key) },
	} {
		var written, rewritten []string
		for _, repo := range r {
			if fits(repo.written) || fits(repo.rewritten) {
				written, rewritten = append(written, repo.written), append(rewritten, repo.rewritten)
			}
		}
		slices.Sort(rewritten)
		if several := slices.Compact(rewritten); len(several) > 1 {
			return nil, fmt.Errorf("ambiguous: %s", strings.Join(several, " or "))
		}
		if len(written) > 0 {
			return written, nil
		}
	}
	return nil, fmt.Errorf("matches no image%s", r.meant(key, true))
}

func (r repository) under(prefix string) bool {
	return r.written == prefix || strings.HasPrefix(r.written, prefix+"/")
}

// shown limits the names in an error: a pod has a handful.
const shown = 8

// meant suggests repositories for a name that matches nothing: the closest prefix, or suffix, with as many components,
// or all repositories.
func (r repositories) meant(name string, isEnd bool) string {
	components := 1 + strings.Count(name, "/")
	var parts, written []string
	namesake := ""
	for _, repo := range r {
		written = append(written, repo.written)
		for _, full := range []string{repo.written, repo.rewritten} {
			all := strings.Split(full, "/")
			from, to := 0, min(components, len(all))
			if isEnd {
				from, to = len(all)-to, len(all)
			}
			parts = append(parts, strings.Join(all[from:to], "/"))
			if path.Base(full) == path.Base(name) {
				namesake = full
			}
		}
	}
	slices.Sort(written)
	written = slices.Compact(written)
	switch near := cmp.Or(config.Nearest(name, parts), namesake); {
	case len(written) == 0:
		return "; the files have no image that can be edited"
	case near != "":
		return fmt.Sprintf(", did you mean %q?", near)
	case len(written) > shown:
		return fmt.Sprintf("; the files have %s and %d more", strings.Join(written[:shown], ", "), len(written)-shown)
	}
	return "; the files have " + strings.Join(written, ", ")
}

// MissingTagsError has the repositories with a placeholder and no tag.
type MissingTagsError struct {
	error

	Repositories []string
}

// Unwrap returns the errors.
func (e MissingTagsError) Unwrap() error { return e.error }

// missingTags returns the repositories whose placeholder is left, and can be replaced.
func missingTags(err error) []string {
	var names []string
	if unresolved, ok := errors.AsType[*manifests.UnresolvedError](err); ok {
		for _, img := range unresolved.Images {
			if img.Editable {
				names = append(names, manifests.SplitReference(img.Reference).Name)
			}
		}
	}
	return names
}
