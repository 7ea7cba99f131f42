// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/manifests"
)

// printDiff shows what becomes of a pod manifest, line by line. One that is not there is
// new; what is the same shows nothing.
func (a *app) printDiff(s settings, file string, wanted []byte) error {
	path := filepath.Join(s.PodManifests, file)
	disk, err := a.readFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	_, err = io.WriteString(a.out, manifests.Diff(path, path+" (wanted)", disk, wanted))
	return err
}

// printWaiting shows the differences of the rendered files that wait for an approval of
// the named images, or of all.
func (a *app) printWaiting(s settings, status agent.Status, names []string) error {
	for _, pod := range status.PodManifests {
		isNamed := func(name string) bool { return isOf(status, pod, name) }
		if !pod.Waiting || len(names) > 0 && !slices.ContainsFunc(names, isNamed) {
			continue
		}
		wanted, err := a.readFile(filepath.Join(s.Rendered, pod.PodManifest))
		if errors.Is(err, fs.ErrNotExist) {
			continue // not staged yet
		}
		if err == nil {
			err = a.printDiff(s, pod.PodManifest, wanted)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// isOf reports whether a person's name of an image, or of a file, is that of a pod manifest.
func isOf(s agent.Status, pod agent.PodStatus, name string) bool {
	return pod.PodManifest == name || slices.ContainsFunc(s.Images, func(i agent.ImageStatus) bool {
		return i.PodManifest == pod.PodManifest && (i.Image == name || strings.HasSuffix(i.Image, "/"+name))
	})
}
