// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/kubic-project/image-update-agent/internal/outside"
)

// Duplicate is a pod that kubelet's directory may define more than once. kubelet runs one pod of each namespace and
// name: that of the file that it read last (pkg/kubelet/config/file.go, replaceStore).
type Duplicate struct {
	Pod    string   // namespace/name
	Files  []string // that define it, sorted
	Unread []string // of which that is not known, but their names are like those of Files
}

// Is reports whether there is more than one file.
func (d Duplicate) Is() bool { return len(d.Files)+len(d.Unread) > 1 }

// maxDuplicates bounds the files that a text names.
const maxDuplicates = 8

func (d Duplicate) String() string {
	if len(d.Files) > 1 {
		return fmt.Sprintf("%s define the pod %s: kubelet runs the one that it read last",
			names(d.Files), outside.Line(d.Pod, maxPodID))
	}
	return fmt.Sprintf("%s cannot be read and may define the pod %s, too", names(d.Unread), outside.Line(d.Pod, maxPodID))
}

// maxPodID is room for a namespace and a name, which have 63 and 253 characters at most.
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

// FindDuplicate finds the files beside file that define the same pod (namespace/name), or may do so.
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

// isNamedLike reports whether a name is that of a copy: velum.yaml.bak, velum.json, velum~ and old-velum.yaml of
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
