// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"github.com/kubic-project/image-update-agent/internal/trustedfile"
)

// containerdFragments is what containerd 2.2 and later import where they are not told otherwise.
const containerdFragments = "/etc/containerd/conf.d/*.toml"

// builtInPath is the config_path of containerd 2.2 and later where the configuration has none.
const builtInPath = "/etc/containerd/certs.d:/etc/docker/certs.d"

// CertsD is what containerd's configuration says about the directories of hosts.toml files.
type CertsD struct {
	isWritten bool   // a file of ours names them, and counts: whether containerd follows them is not looked at
	read      bool   // there is a configuration
	path      string // config_path; empty: none
	mirrors   bool   // the tables that hosts.toml has replaced
	client    bool   // a setting makes containerd 2.1 and later pull by their client, as earlier versions do
}

// readCertsD reads containerd's own keys, which moved with version 3 of its configuration (containerd 2.x).
func readCertsD(root string, isWritten bool) CertsD {
	if isWritten {
		return CertsD{isWritten: true}
	}
	var out CertsD
	for _, file := range containerdFiles(root) {
		plugins := pluginsOf(file)
		out.read = out.read || plugins != nil
		for _, name := range []string{"io.containerd.grpc.v1.cri", "io.containerd.cri.v1.images"} {
			plugin := tableOf(plugins[name])
			registry := tableOf(plugin["registry"])
			path, _ := registry["config_path"].(string)
			out.path = cmp.Or(path, out.path)
			out.mirrors = out.mirrors || len(tableOf(registry["mirrors"])) > 0
			out.client = out.client || out.mirrors || pullsByClient(plugin, registry)
		}
	}
	return out
}

// pullsByClient is what containerd's CheckLocalImagePullConfigs looks at.
func pullsByClient(plugin, registry map[string]any) bool {
	for _, key := range []string{"use_local_image_pull", "discard_unpacked_layers", "image_pull_with_sync_fs"} {
		if is, _ := plugin[key].(bool); is {
			return true
		}
	}
	disabled, written := plugin["disable_snapshot_annotations"].(bool)
	downloads, limited := plugin["max_concurrent_downloads"].(int64)
	return written && !disabled || limited && downloads != 3 ||
		len(tableOf(registry["configs"])) > 0 || len(tableOf(registry["auths"])) > 0
}

// Counts reports that polls follow hosts.toml, whatever the version of containerd: config_path names one directory, or
// a file of ours says so.
func (c CertsD) Counts() bool { return c.isWritten || c.path != "" && !isList(c.path) }

// IsKnown reports that the node has a configuration of containerd.
func (c CertsD) IsKnown() bool { return c.read }

// Ignored returns why a containerd of that version follows no hosts.toml; empty: it does, or nothing says so. inUse is
// the config_path that the running containerd names; empty: it names none.
func (c CertsD) Ignored(version, inUse string) string {
	path := cmp.Or(inUse, c.path)
	if path == "" && c.read && !c.mirrors && isAtLeast(version, 2, 2) {
		path = builtInPath
	}
	switch {
	case path == "" && c.read && version != "": // the version tells a containerd that answered
		return "containerd's configuration has no config_path"
	case isList(path) && !c.client && isAtLeast(version, 2, 1):
		return fmt.Sprintf("config_path is %q, which containerd %s takes for the name of one directory", path, version)
	default:
		return ""
	}
}

func isList(path string) bool { return strings.Contains(path, ":") }

// isAtLeast compares a version as containerd gives it ("v2.4.2", "1.6.20~ds1").
func isAtLeast(version string, major, minor int) bool {
	var x, y int
	if _, err := fmt.Sscanf(strings.TrimPrefix(version, "v"), "%d.%d", &x, &y); err != nil {
		return false
	}
	return x > major || x == major && y >= minor
}

// Unpacks reads how many layers of an image containerd unpacks at once in its own pulls (max_concurrent_unpacks, of
// 2.2 and later); 0: its configuration does not say.
func Unpacks(root string) int {
	unpacks := 0
	for _, file := range containerdFiles(root) {
		n, _ := tableOf(pluginsOf(file)["io.containerd.transfer.v1.local"])["max_concurrent_unpacks"].(int64)
		unpacks = cmp.Or(max(int(n), 0), unpacks)
	}
	return unpacks
}

// containerdFiles are containerd's configuration and the fragments that 2.2 imports by default; the last one wins.
func containerdFiles(root string) []string {
	fragments, _ := filepath.Glob(root + containerdFragments)
	return append([]string{root + containerdFile}, fragments...)
}

// pluginsOf are the tables of plugins in a configuration; nil: it is not there, or cannot be read.
func pluginsOf(file string) map[string]any {
	data, err := trustedfile.Read(file, maxFile)
	if err != nil {
		return nil
	}
	var root map[string]any
	if err := toml.Unmarshal(data, &root); err != nil {
		return nil
	}
	if plugins := tableOf(root["plugins"]); plugins != nil {
		return plugins
	}
	return map[string]any{}
}

func tableOf(value any) map[string]any {
	table, _ := value.(map[string]any)
	return table
}
