// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"time"
)

// Observer observes the node. Its observations are complete or an error: in half an observation a
// running pod could look absent.
type Observer struct {
	Files    PodFileReader
	Pods     ContainerLister
	Images   ImageRecords
	Busy     func(context.Context) (grain string, err error) // the grain by which another operation owns the node
	NodeName string
	State    *State
}

// State is what one observation hands to the next.
type State struct {
	Missing map[string]time.Time // since when, by "file/container"
	Parsed  parsedFiles
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
	o.State.Parsed = inv.parse(o.State.Parsed)
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
