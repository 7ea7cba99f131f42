// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/kubic-project/image-update-agent/internal/base/outside"
)

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
