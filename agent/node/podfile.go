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

	Parsed *parsedPod // from Data; nil: not parsed
}

// Parse returns the pod of the file. It uses what the observation has parsed.
func (f PodFile) Parse() (manifests.Pod, error) {
	if f.Parsed != nil {
		return f.Parsed.pod, f.Parsed.err
	}
	return manifests.Parse(f.Data)
}

type parsedPod struct {
	pod manifests.Pod
	err error
}

// parsedPods are the pods of one observation, by the SHA-256 of their files.
type parsedPods map[[sha256.Size]byte]*parsedPod

// parse parses the files that are not in before, and returns the pods of this observation.
func (inv *Inventory) parse(before parsedPods) parsedPods {
	now := parsedPods{}
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
				pod, err := manifests.Parse(files[n].Data)
				now[key] = &parsedPod{pod, err}
			}
			files[n].Parsed = now[key]
		}
	}
	return now
}
