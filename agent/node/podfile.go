// SPDX-License-Identifier: Apache-2.0

package node

import (
	"crypto/sha256"

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
