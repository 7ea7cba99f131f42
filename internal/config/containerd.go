// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/kubic-project/image-update-agent/internal/outside"
	"github.com/kubic-project/image-update-agent/internal/platform"
)

// builtInPath is the config_path of containerd 2.2 and later where the configuration has none.
const builtInPath = "/etc/containerd/certs.d:/etc/docker/certs.d"

// NoPath is the config_path of a running containerd that says it has none.
const NoPath = "-"

// CertsD is what containerd's configuration says about the directories of hosts.toml files.
type CertsD struct {
	root      string // before the paths that a containerd of this root names, and not in its configuration
	isWritten bool   // a file of ours names them, and counts: whether containerd follows them is not looked at
	read      bool   // there is a configuration
	path      string // config_path as containerd 2.x reads it; empty: none
	path1     string // the same as containerd 1.x reads it
	mirrors   bool   // the tables that hosts.toml has replaced
	client    bool   // a setting makes containerd 2.1 and later pull by their client, as earlier versions do
	err       error  // what of the configuration could not be read
}

// criPlugins have the settings of images: in version 1 of the configuration, in version 2, and in 3 (containerd 2.x).
var criPlugins = []string{"cri", "io.containerd.grpc.v1.cri", "io.containerd.cri.v1.images"}

// readCertsD reads containerd's own keys.
func readCertsD(p platform.Platform, isWritten bool) CertsD {
	if isWritten {
		return CertsD{isWritten: true}
	}
	c := readContainerd(p)
	out := CertsD{
		root: filepath.Clean("/" + p.Root), read: c.read, err: c.err,
		path: configPath(c.merged), path1: configPath(c.replaced),
	}
	for _, name := range criPlugins {
		plugin := tableOf(c.merged[name])
		registry := tableOf(plugin["registry"])
		out.mirrors = out.mirrors || len(tableOf(registry["mirrors"])) > 0
		out.client = out.client || out.mirrors || pullsByClient(plugin, registry)
	}
	return out
}

// configPath is config_path among the tables of plugins.
func configPath(plugins map[string]any) string {
	out := ""
	for _, name := range criPlugins {
		path, _ := tableOf(tableOf(plugins[name])["registry"])["config_path"].(string)
		out = cmp.Or(path, out)
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
func (c CertsD) Counts() bool {
	return c.isWritten || c.err == nil && c.path != "" && c.path == c.path1 && !isList(c.path)
}

// IsKnown reports that the node has a configuration of containerd.
func (c CertsD) IsKnown() bool { return c.read }

// Err returns what of the configuration could not be read, unless the running containerd names its config_path (inUse).
func (c CertsD) Err(inUse string) error {
	if c.err == nil || inUse != "" {
		return nil
	}
	return fmt.Errorf("containerd's configuration cannot be read: %w", outside.Error(c.err))
}

// Ignored returns why a containerd of that version follows no hosts.toml, or not those that its configuration names;
// empty: it does, or nothing says so. inUse is the config_path that the running containerd names, or NoPath; empty: it
// does not say.
func (c CertsD) Ignored(version, inUse string) string {
	own := c.path
	if version != "" && !isAtLeast(version, 2, 0) && isAtLeast(version, 1, 0) {
		own = c.path1
	}
	inUse = c.withoutRoot(inUse)
	path := cmp.Or(inUse, own)
	if path == "" && c.err == nil && c.read && !c.mirrors && isAtLeast(version, 2, 2) {
		path = builtInPath
	}
	switch {
	case c.Err(inUse) != nil:
		return c.Err(inUse).Error()
	case inUse == NoPath && own != "":
		return fmt.Sprintf("containerd runs without a config_path, and its configuration says %q", own)
	case inUse == NoPath:
		return "containerd runs without a config_path"
	case path == "" && c.read && version != "": // the version tells a containerd that answered
		return "containerd's configuration has no config_path"
	case isList(path) && !c.client && isAtLeast(version, 2, 1):
		return fmt.Sprintf("config_path is %q, which containerd %s takes for the name of one directory", path, version)
	case inUse != "" && own != "" && inUse != own:
		return fmt.Sprintf("containerd runs with config_path %q, and its configuration says %q", inUse, own)
	default:
		return ""
	}
}

// withoutRoot names directories as the configuration below the root does.
func (c CertsD) withoutRoot(list string) string {
	dirs := strings.Split(list, ":")
	for n, dir := range dirs {
		if rest, is := strings.CutPrefix(dir, c.root+"/"); is && c.root != "/" {
			dirs[n] = "/" + rest
		}
	}
	return strings.Join(dirs, ":")
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
func Unpacks(p platform.Platform) int {
	n, _ := tableOf(readContainerd(p).merged["io.containerd.transfer.v1.local"])["max_concurrent_unpacks"].(int64)
	return max(int(n), 0)
}

func tableOf(value any) map[string]any {
	table, _ := value.(map[string]any)
	return table
}
