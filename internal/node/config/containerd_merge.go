// SPDX-License-Identifier: Apache-2.0

package config

import (
	"maps"
	"strings"
)

// The plugins with the settings of images in versions 1, 2 and 3 (containerd 2.x) of the configuration.
const (
	criPlugin1     = "cri"
	criPlugin      = "io.containerd.grpc.v1.cri"
	imagesPlugin   = "io.containerd.cri.v1.images"
	transferPlugin = "io.containerd.transfer.v1.local"
)

// merged returns the plugins as in containerd 2.x: each file of an older version is migrated, and a later file changes
// a table key by key.
func (c containerdConfig) merged() map[string]any {
	all := map[string]any{}
	for _, file := range c.files {
		mergeTables(all, file.migrated())
	}
	return all
}

// migrated returns the plugins of a file by their names in version 4.
func (f loadedFile) migrated() map[string]any {
	plugins := maps.Clone(f.Plugins)
	if f.Version >= 4 {
		return plugins
	}
	if cri, is := plugins[criPlugin1]; is && f.Version < 2 {
		plugins[criPlugin] = cri
	}
	cri := tableOf(plugins[criPlugin])
	if cri == nil {
		return plugins
	}
	images := map[string]any{}
	maps.Copy(images, tableOf(plugins[imagesPlugin]))
	moved := func(from map[string]any, keys ...string) {
		for _, key := range keys {
			if value, is := from[key]; is {
				images[key] = value
			}
		}
	}
	moved(cri, "registry", "max_concurrent_downloads", "image_pull_with_sync_fs")
	if containerd := tableOf(cri["containerd"]); containerd["runtimes"] != nil { // else containerd does not migrate it
		moved(containerd, "disable_snapshot_annotations", "discard_unpacked_layers")
	}
	plugins[imagesPlugin] = images
	return plugins
}

// replaced returns the table of the CRI plugin as in containerd 1.x: the last version in a file determines the plugin's
// name, and a later file replaces its whole table. It returns false for a configuration that 1.x rejects.
func (c containerdConfig) replaced() (cri map[string]any, runs bool) {
	version, plugins := 1, map[string]any{}
	for _, file := range c.files {
		if file.Version != 0 {
			version = file.Version
		}
		maps.Copy(plugins, file.Plugins)
	}
	if version < 2 {
		return tableOf(plugins[criPlugin1]), true
	}
	for name := range plugins {
		if version > 2 || strings.Count(name, ".") < 3 {
			return nil, false
		}
	}
	return tableOf(plugins[criPlugin]), version == 2
}

// mergeTables merges from into a table, key by key.
func mergeTables(to, from map[string]any) {
	for key, value := range from {
		table, isTable := value.(map[string]any)
		if own, is := to[key].(map[string]any); is && isTable {
			mergeTables(own, table)
			continue
		}
		if isTable {
			own := map[string]any{}
			mergeTables(own, table)
			value = own
		}
		to[key] = value
	}
}
