// SPDX-License-Identifier: Apache-2.0

package main

import (
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kubic-project/image-update-agent/agent/status"
)

// completeFiles completes file names for the global flags that take one, and nowhere
// else, unless a verb says otherwise.
func completeFiles(cmd *cobra.Command) {
	cmd.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	// The flags were just defined, so marking cannot go wrong.
	_ = cmd.MarkPersistentFlagFilename("config", "yaml")
	_ = cmd.MarkPersistentFlagDirname("root")
}

// completeImages completes the names of images: repositories, their last parts, and pod manifests. It needs no daemon:
// the last status and the pod manifests are files.
func (a *app) completeImages(_ *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	settings, err := a.daemonSettings()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	last, err := settings.lastStatus()
	if err != nil {
		last = status.Status{}
	}
	a.invalid = nil
	entries, _ := os.ReadDir(settings.PodManifests) // a directory that cannot be read completes nothing
	for _, e := range entries {
		if isPodManifest(e) {
			last.PodManifests = append(last.PodManifests, status.PodStatus{PodManifest: e.Name()})
		}
	}
	return imageNames(last, args, begun), cobra.ShellCompDirectiveNoFileComp
}

func isPodManifest(e os.DirEntry) bool {
	return e.Type().IsRegular() && !strings.HasPrefix(e.Name(), ".") &&
		slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(e.Name()))
}

// imageNames returns the names in a status that begin with begun and are not among args, sorted.
func imageNames(s status.Status, args []string, begun string) []string {
	names := map[string]bool{}
	for _, i := range s.Images {
		names[i.Image], names[path.Base(i.Image)] = true, true
	}
	for _, p := range s.PodManifests {
		names[p.PodManifest] = true
	}
	for name := range names {
		if !strings.HasPrefix(name, begun) || slices.Contains(args, name) {
			delete(names, name)
		}
	}
	return slices.Sorted(maps.Keys(names))
}
