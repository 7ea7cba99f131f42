// SPDX-License-Identifier: Apache-2.0

package node

import (
	"crypto/sha256"

	"github.com/kubic-project/image-update-agent/manifests"
)

// PodFile is one file of a directory of pod manifests or templates. A file that
// must not be used (a symlink, a FIFO, world-writable) has Err and no Data.
type PodFile struct {
	Name string
	Data []byte
	Err  error

	Parsed *parsedPod // of Data; nil: it was not parsed yet
}

// Parse gives the pod that the file describes. What an observation has parsed is
// not parsed again.
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

// parsedPods are the pods of one observation, by the SHA-256 of their files. Files
// that did not change since the observation before are not parsed again.
type parsedPods map[[sha256.Size]byte]*parsedPod

// parse has the files of an observation parsed once, those that are in before not
// again. It returns the pods of this observation.
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
