// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/manifests"
)

// diff compares a pod manifest with the wanted one, line by line; empty: they are the same. A file that is not there is
// empty.
func (a *app) diff(s settings, file string, wanted []byte) (string, error) {
	path := filepath.Join(s.PodManifests, file)
	disk, err := a.readFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	return manifests.Diff(path, path+" (wanted)", disk, wanted), nil
}

// waitingDiffs are the differences of the rendered files that wait for an approval of
// the named images, or of all, by pod manifest.
func (a *app) waitingDiffs(s settings, status status.Status, names []string) (map[string]string, error) {
	diffs := map[string]string{}
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
			diffs[pod.PodManifest], err = a.diff(s, pod.PodManifest, wanted)
		}
		if err != nil {
			return nil, err
		}
	}
	return diffs, nil
}

// isOf reports whether a person's name of an image, or of a file, is that of a pod manifest.
func isOf(s status.Status, pod status.PodStatus, name string) bool {
	return pod.PodManifest == name || slices.ContainsFunc(s.Images, func(i status.ImageStatus) bool {
		return i.PodManifest == pod.PodManifest && (i.Image == name || strings.HasSuffix(i.Image, "/"+name))
	})
}
