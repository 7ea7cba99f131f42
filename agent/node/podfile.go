// SPDX-License-Identifier: Apache-2.0

package node

import (
	"crypto/sha256"

	"github.com/kubic-project/image-update-agent/manifests"
)

// PodFile is a pod manifest or template. A file that must not be used (a symlink, a FIFO,
// world-writable) has Err and no Data.
type PodFile struct {
	Name string
	Data []byte
	Err  error

	parsed *parsedFile // from Data; nil: not parsed
}

// Parse parses the file. It uses what the observation has parsed.
func (f PodFile) Parse() (*manifests.File, error) {
	if f.parsed != nil {
		return f.parsed.file, f.parsed.err
	}
	return manifests.Parse(f.Data)
}

// Replaced returns the file with the content of another one.
func (f PodFile) Replaced(by *manifests.File) PodFile {
	f.Data, f.parsed = by.Data, &parsedFile{by, nil}
	return f
}

type parsedFile struct {
	file *manifests.File
	err  error
}

// parsedFiles are the files of one observation, by their SHA-256.
type parsedFiles map[[sha256.Size]byte]*parsedFile

// parse parses the files that are not in before, and returns those of this observation.
func (inv *Inventory) parse(before parsedFiles) parsedFiles {
	now := parsedFiles{}
	for _, files := range [][]PodFile{inv.Templates, inv.PodManifests} {
		for n := range files {
			if files[n].Err != nil {
				continue
			}
			key := sha256.Sum256(files[n].Data)
			if now[key] == nil {
				now[key] = before[key]
			}
			if now[key] == nil {
				file, err := manifests.Parse(files[n].Data)
				now[key] = &parsedFile{file, err}
			}
			files[n].parsed = now[key]
		}
	}
	return now
}
