// SPDX-License-Identifier: Apache-2.0

// Package filerender renders pod manifests named by a person, with the person's tags. It does not change the files.
package filerender

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/base/nodefile"
	"github.com/kubic-project/image-update-agent/internal/node/config"
	"github.com/kubic-project/image-update-agent/manifests"
	"github.com/kubic-project/image-update-agent/tags"
)

// StandardInput is the path of standard input.
const StandardInput = "-"

// Options are the flags of `manifests render`.
type Options struct {
	Set        []string // REPOSITORY=TAG
	Rewrite    []string // FROM=TO
	PullPolicy string   // empty: unchanged
	Diff       bool     // print differences instead of files
	To         string   // the directory for the results; empty: none
}

// UsageError is an error in the options or paths.
type UsageError struct{ error }

// Unwrap returns the error.
func (e UsageError) Unwrap() error { return e.error }

// File is a rendered file, one line of `manifests render --output json`.
type File struct {
	File      string             `json:"file"`
	Changes   []Change           `json:"changes"`
	Untouched []status.Untouched `json:"untouched"`
	To        string             `json:"to"`       // with Options.To: the file that was written
	Diff      string             `json:"diff"`     // with Options.Diff
	Rendered  string             `json:"rendered"` // the whole file, without either

	template *manifests.File
	result   []byte
}

// Change is one edit.
type Change struct {
	Path string `json:"path"`
	Line int    `json:"line"`
	From string `json:"from"`
	To   string `json:"to"`
}

// Render renders everything before it writes anything, so that an error writes nothing: UsageError. It returns the
// rendered files together with the errors of others, which may include MissingTagsError, and with unread, the earlier
// errors. Errors of read do not name the path.
func Render(o Options, paths []string, read func(path string) ([]byte, error), unread error) ([]File, error) {
	overrides, err := o.overrides()
	if err != nil {
		return nil, UsageError{err}
	}
	sets, err := parseSets(o.Set)
	if err != nil {
		return nil, UsageError{err}
	}
	if err := o.checkTargets(paths); err != nil {
		return nil, UsageError{err}
	}
	var files []File
	var used repositories
	errs := []error{unread}
	for _, path := range paths {
		data, err := read(path)
		var template *manifests.File
		if err == nil {
			template, err = manifests.Parse(data)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", path, err))
			continue
		}
		files = append(files, File{File: path, template: template})
		used.add(template.Images, overrides.Rewrites)
	}
	tags, err := used.choose(sets, overrides.Rewrites)
	if err != nil && errors.Join(errs...) == nil { // it may match in a file that could not be read
		return nil, UsageError{err}
	}
	overrides.Tag = func(_ string, img manifests.Image) (string, bool) {
		tag, ok := tags[manifests.SplitReference(img.Reference).Name]
		return tag, ok
	}
	return o.render(files, overrides, errs)
}

// NotSetError is an image that --set names but whose tag cannot be set.
type NotSetError struct {
	Image manifests.Image // with the Reason
	Tag   string
}

func (e *NotSetError) Error() string {
	return fmt.Sprintf("line %d: %s: %s: tag %s is not set: %s", e.Image.Line, e.Image.Path, e.Image.Reference, e.Tag,
		manifests.ReasonText(e.Image.Reason))
}

// notSet returns an error for each image that kubelet pulls and that did not get the tag of its setting. It checks the
// result, for any reason.
func notSet(
	template []manifests.Image, out manifests.Rendered, tag func(string, manifests.Image) (string, bool),
) error {
	var errs []error
	for n, img := range template {
		want, is := tag("", img)
		if !is || !isPulled(img) {
			continue
		}
		if got := manifests.SplitReference(out.Images[n].Reference); got.Tag == want && got.Digest == "" {
			continue
		}
		for _, left := range out.Untouched {
			if img.Reason == "" && left.Path == img.Path && left.Document == 0 {
				img.Reason = left.Reason
			}
		}
		errs = append(errs, &NotSetError{img, want})
	}
	return errors.Join(errs...)
}

// render renders the files, and writes, compares or keeps the results.
func (o Options) render(files []File, overrides manifests.Overrides, errs []error) ([]File, error) {
	var missing []string
	done := files[:0]
	for _, f := range files {
		if err := f.render(overrides); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", f.File, err))
			missing = append(missing, missingTags(err)...)
			continue
		}
		done = append(done, f)
	}
	for n := range done {
		f := &done[n]
		switch {
		case o.Diff:
			f.Diff = manifests.Diff(f.File, f.File+" (rendered)", f.template.Data, f.result)
		case o.To == "":
			f.Rendered = string(f.result)
		default:
			f.To = filepath.Join(o.To, filepath.Base(f.File))
			if err := f.write(o.To); err != nil {
				return nil, errors.Join(append(errs, err)...)
			}
		}
	}
	err := errors.Join(errs...)
	if len(missing) > 0 {
		slices.Sort(missing)
		return done, MissingTagsError{err, slices.Compact(missing)}
	}
	return done, err
}

func (f *File) render(overrides manifests.Overrides) error {
	out, err := f.template.Render(overrides, nil)
	if err != nil {
		return err
	}
	if err := notSet(f.template.Images, out, overrides.Tag); err != nil {
		return err
	}
	f.result, f.Changes, f.Untouched = out.Data, []Change{}, []status.Untouched{}
	for _, c := range out.Changes {
		f.Changes = append(f.Changes, Change(c))
	}
	for _, l := range out.Untouched {
		f.Untouched = append(f.Untouched, status.Untouched{
			Path: l.Path, Line: l.Line, Reference: l.Reference, Reason: l.Reason,
			Text: manifests.ReasonText(l.Reason),
		})
	}
	return nil
}

// checkTargets refuses to write over another result or an input with --to.
func (o Options) checkTargets(paths []string) error {
	if o.To == "" {
		return nil
	}
	from := map[string]string{}
	for _, path := range paths {
		name := filepath.Base(path)
		if path == StandardInput {
			return errors.New("--to: standard input has no name")
		}
		if other, twice := from[name]; twice {
			return fmt.Errorf("--to %s: %s and %s have the same name", o.To, other, path)
		}
		from[name] = path
		input, err := os.Stat(path)
		if err != nil {
			continue // reported when the file is read
		}
		if target, err := os.Stat(filepath.Join(o.To, name)); err == nil && os.SameFile(input, target) {
			return fmt.Errorf("--to %s: would overwrite %s", o.To, path)
		}
	}
	return nil
}

func (o Options) overrides() (manifests.Overrides, error) {
	out := manifests.Overrides{PullPolicy: o.PullPolicy}
	if !slices.Contains([]string{"", manifests.PullAlways, manifests.PullIfNotPresent}, o.PullPolicy) {
		return out, fmt.Errorf("--pull-policy %q: want Always or IfNotPresent", o.PullPolicy)
	}
	for _, s := range o.Rewrite {
		from, to, ok := strings.Cut(s, "=")
		if !ok || from == "" || to == "" {
			return out, fmt.Errorf("--rewrite %q: want FROM=TO", s)
		}
		out.Rewrites = append(out.Rewrites, manifests.Rewrite{From: from, To: to})
	}
	return out, manifests.CheckRewrites(out.Rewrites)
}

// write writes the result to a directory, for the same users as the file. A user who is not root cannot give it away.
func (f *File) write(dir string) error {
	like, err := nodefile.Access(f.File)
	if err != nil {
		return fmt.Errorf("%s: %w", f.File, err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	d, err := nodefile.OpenDir(dir)
	if err != nil {
		return err
	}
	name := filepath.Base(f.File)
	if info, err := os.Lstat(f.To); err == nil && info.Mode().IsRegular() && like.IsOwner(info) {
		_ = os.Remove(f.To) // given away before: a Dir replaces only files of root and of this user
	}
	_, err = d.Write(name, f.result, nodefile.Options{Like: &like})
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EINVAL) { // EINVAL: not a user of this namespace
		like = like.ForThisUser()
		_, err = d.Write(name, f.result, nodefile.Options{Like: &like})
	}
	return errors.Join(err, d.Close())
}

// Text returns the output of files for people: differences, or the files, with a line --- between two if needed.
func Text(files []File) []byte {
	var out bytes.Buffer
	for _, f := range files {
		if f.Rendered != "" && out.Len() > 0 {
			separate(&out, f.result)
		}
		out.WriteString(f.Diff + f.Rendered)
	}
	return out.Bytes()
}

// separate ends a document, unless the next one begins with a separator.
func separate(out *bytes.Buffer, next []byte) {
	if !bytes.HasSuffix(out.Bytes(), []byte("\n")) {
		out.WriteByte('\n')
	}
	for line := range bytes.Lines(next) {
		switch text := bytes.TrimSpace(line); {
		case bytes.HasPrefix(line, []byte("---")):
			return
		case len(text) > 0 && text[0] != '#':
			out.WriteString("---\n")
			return
		}
	}
}

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
