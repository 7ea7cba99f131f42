// SPDX-License-Identifier: Apache-2.0

package main

import (
	"maps"
	"path"
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

// completeImages offers what a person may call an image: the end of its
// repository, the repository, the pod manifest. It asks no daemon: the last status
// is in a file.
func (a *app) completeImages(_ *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	var last status.Status
	settings, err := a.settings()
	if err == nil {
		last, err = settings.lastStatus()
	}
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return imageNames(last, args, begun), cobra.ShellCompDirectiveNoFileComp
}

// imageNames are the names in a status that begin so, without those that stand
// there already. Sorted.
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
