// SPDX-License-Identifier: Apache-2.0

package node

import (
	"crypto/sha256"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/kubic-project/image-update-agent/internal/base/outside"
	"github.com/kubic-project/image-update-agent/manifests"
)

// PodFile is a pod manifest or template. A file that must not be written (a symlink, a FIFO,
// world-writable) has Err and no Data.
type PodFile struct {
	Name string
	Data []byte
	Err  error
	// Followed is the content that kubelet reads from a pod manifest with Err; nil: nothing, or unknown.
	Followed []byte
	// PassedOver: kubelet ignores a pod manifest with Err (a directory, a dangling symlink).
	PassedOver bool

	parsed *parsedFile // from Content; nil: not parsed
}

// Content returns the content that kubelet reads; nil: nothing, or unknown.
func (f PodFile) Content() []byte {
	if f.Data == nil {
		return f.Followed
	}
	return f.Data
}

// Parse parses the file, or returns the result from the observation.
func (f PodFile) Parse() (*manifests.File, error) {
	if f.parsed != nil {
		return f.parsed.file, f.parsed.err
	}
	return manifests.Parse(f.Content())
}

// Defines returns "namespace/name" of the pod that kubelet reads from the file; empty if there is none, or if unknown.
func (f PodFile) Defines() string {
	if f.parsed != nil {
		return f.parsed.defines
	}
	return manifests.Defines(f.Content())
}

// IsUnread reports whether it is unknown what kubelet reads from the file.
func (f PodFile) IsUnread() bool { return f.Err != nil && f.Followed == nil && !f.PassedOver }

// Replaced returns the file with the content of another one.
func (f PodFile) Replaced(by *manifests.File) PodFile {
	f.Data, f.parsed = by.Data, &parsedFile{by, by.ID(), nil}
	return f
}

type parsedFile struct {
	file    *manifests.File
	defines string
	err     error
}

// parsedFiles are the files of one observation, by their SHA-256.
type parsedFiles map[[sha256.Size]byte]*parsedFile

// parse parses the files that are not in before, and adds all to now.
func parseAll(files []PodFile, before, now parsedFiles) {
	for n := range files {
		text := files[n].Content()
		if text == nil {
			continue
		}
		key := sha256.Sum256(text)
		if now[key] == nil {
			now[key] = before[key]
		}
		if now[key] == nil {
			now[key] = parse(text)
		}
		files[n].parsed = now[key]
	}
}

func parse(text []byte) *parsedFile {
	file, err := manifests.Parse(text)
	if err != nil {
		return &parsedFile{nil, manifests.Defines(text), err}
	}
	return &parsedFile{file, file.ID(), nil}
}

// Duplicate is a pod that kubelet's directory may define more than once. kubelet runs one pod per namespace and name,
// from the file that it read last (pkg/kubelet/config/file.go, replaceStore).
type Duplicate struct {
	Pod    string   // namespace/name
	Files  []string // that define it, sorted
	Unread []string // whose pods are unknown, but whose names resemble Files
}

// Is reports whether there is more than one file.
func (d Duplicate) Is() bool { return len(d.Files)+len(d.Unread) > 1 }

// maxDuplicates limits the files named in a text.
const maxDuplicates = 8

func (d Duplicate) String() string {
	if len(d.Files) > 1 {
		return fmt.Sprintf("%s define the same pod %s: kubelet runs the one that it read last",
			names(d.Files), outside.Line(d.Pod, maxPodID))
	}
	return fmt.Sprintf("%s cannot be read and may also define the pod %s", names(d.Unread), outside.Line(d.Pod, maxPodID))
}

// maxPodID exceeds the length of namespace and name, at most 63 and 253 characters.
const maxPodID = 320

func names(files []string) string {
	if more := len(files) - maxDuplicates; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(files[:maxDuplicates], ", "), more)
	}
	if last := len(files) - 1; last > 0 {
		return strings.Join(files[:last], ", ") + " and " + files[last]
	}
	return strings.Join(files, "")
}

// FindDuplicate finds the other files that define, or may define, the pod (namespace/name) of file.
func FindDuplicate(files []PodFile, file, pod string) Duplicate {
	d := Duplicate{Pod: pod, Files: []string{file}}
	for _, f := range files {
		switch {
		case f.Name == file:
		case f.IsUnread() && isNamedLike(f.Name, file, path.Base(pod)):
			d.Unread = append(d.Unread, f.Name)
		case f.Defines() == pod:
			d.Files = append(d.Files, f.Name)
		}
	}
	slices.Sort(d.Files)
	d.Files = slices.Compact(d.Files)
	return d
}

// isNamedLike reports whether a name looks like a copy: velum.yaml.bak, velum.json, velum~ and old-velum.yaml of
// velum.yaml.
func isNamedLike(name, file, pod string) bool {
	stem, _, _ := strings.Cut(file, ".")
	name = strings.ToLower(name)
	for _, like := range []string{strings.ToLower(stem), strings.ToLower(pod)} {
		for at := 0; like != "" && at < len(name); at++ {
			rest, is := strings.CutPrefix(name[at:], like)
			begins := at == 0 || strings.ContainsRune(".-_~#( ", rune(name[at-1]))
			if is && begins && (rest == "" || strings.ContainsRune("._~# (", rune(rest[0]))) {
				return true
			}
		}
	}
	return false
}
