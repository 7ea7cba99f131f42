// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/face/statuspage"
)

func (a *app) historyCommand() *cobra.Command {
	return a.withOutput(&cobra.Command{
		Use:   "history [POD...]",
		Short: "Show past updates and rollbacks: when, by whom, and with what result",
		Long: `history lists the updates and rollbacks of this node, the newest first: one entry for
each container whose release changed, including releases that kubelet picked up by
itself, and failures. It keeps the last 50 entries over restarts of the daemon and the
node. If the daemon does not run, history shows the entries of the last status.

A POD is a pod manifest, with or without its suffix, or an image, as for apply. Without
POD the history of all pods is shown.

Exit status: 0 shown, 1 the history cannot be read, 2 unknown pod.`,
		Example: `  image-update-agent history
  image-update-agent history velum
  image-update-agent history --output json | jq '.[] | select(.result == "failed")'`,
		ValidArgsFunction: a.completeImages,
		RunE: func(cmd *cobra.Command, pods []string) error {
			s, err := a.currentStatus(cmd.Context())
			if err != nil {
				return err
			}
			entries, err := historyOf(s, pods)
			if err != nil {
				return err
			}
			return a.show(entries, func() error { return statuspage.History(a.page(), entries) })
		},
	})
}

// historyOf returns the history of pods, or all of it. A pod that the node has may have no history yet.
func historyOf(s status.Status, pods []string) ([]status.HistoryEntry, error) {
	entries := append([]status.HistoryEntry{}, s.History...) // an older daemon has none
	if len(pods) == 0 {
		return entries, nil
	}
	for _, pod := range pods {
		isPod := slices.ContainsFunc(s.PodManifests, func(p status.PodStatus) bool { return isNameOf(p.PodManifest, pod) })
		isImage := slices.ContainsFunc(s.Images, func(i status.ImageStatus) bool { return plan.IsRepository(i.Image, pod) })
		isPast := slices.ContainsFunc(entries, func(e status.HistoryEntry) bool { return isEntryOf(e, pod) })
		if !isPod && !isImage && !isPast {
			return nil, fmt.Errorf("%s: %w", pod, plan.ErrUnknownImage)
		}
	}
	return slices.DeleteFunc(entries, func(e status.HistoryEntry) bool {
		return !slices.ContainsFunc(pods, func(pod string) bool { return isEntryOf(e, pod) })
	}), nil
}

func isEntryOf(e status.HistoryEntry, pod string) bool {
	return isNameOf(e.PodManifest, pod) || e.Image != "" && plan.IsRepository(e.Image, pod)
}

// isNameOf reports whether name is a pod manifest, with or without its suffix.
func isNameOf(podManifest, name string) bool {
	return podManifest == name || strings.TrimSuffix(podManifest, filepath.Ext(podManifest)) == name
}
