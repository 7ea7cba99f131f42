// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"time"
)

// Observer observes the node. An observation is complete or an error: in a partial one a running pod could look absent.
type Observer struct {
	Files    PodFileReader
	Pods     ContainerLister
	Images   ImageRecords
	Busy     func(context.Context) (grain string, err error) // the grain with which another operation owns the node
	NodeName string
	State    *State
}

// State is the state that one observation passes to the next.
type State struct {
	Missing map[string]time.Time // since when, by "file/container"
	Parsed  parsedFiles
}

// Parse parses pod manifests that were read after the observation; those that it has seen are not parsed again.
func (s *State) Parse(files []PodFile) {
	if s.Parsed == nil {
		s.Parsed = parsedFiles{}
	}
	parseAll(files, s.Parsed, s.Parsed)
}

// ObserveFiles reads the directories of pod manifests.
func (o Observer) ObserveFiles(ctx context.Context) (Inventory, error) {
	inv := Inventory{NodeName: o.NodeName}
	var err error
	if inv.Templates, err = o.Files.Templates(ctx); err != nil {
		return inv, fmt.Errorf("templates: %w", err)
	}
	if inv.PodManifests, err = o.Files.PodManifests(ctx); err != nil {
		return inv, fmt.Errorf("pod manifests: %w", err)
	}
	if inv.Waiting, err = o.Files.Waiting(ctx); err != nil {
		return inv, fmt.Errorf("rendered pod manifests: %w", err)
	}
	if inv.BusyGrain, err = o.Busy(ctx); err != nil {
		inv.Busy = err.Error() // an unknown node counts as busy
	} else if inv.BusyGrain != "" {
		inv.Busy = "the grain " + inv.BusyGrain + " is true"
	}
	inv.Missing = o.State.Missing
	now := parsedFiles{}
	parseAll(inv.Templates, o.State.Parsed, now)
	parseAll(inv.PodManifests, o.State.Parsed, now)
	o.State.Parsed = now
	return inv, nil
}

// ObserveRuntime adds the containers and the images of the node.
func (o Observer) ObserveRuntime(ctx context.Context, inv *Inventory) error {
	var err error
	if inv.Containers, inv.Used, err = o.Pods.Containers(ctx); err != nil {
		return fmt.Errorf("containers: %w", err)
	}
	if inv.Held, err = o.Images.Held(ctx); err != nil {
		return fmt.Errorf("images: %w", err)
	}
	return nil
}
