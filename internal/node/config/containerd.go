// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"github.com/kubic-project/image-update-agent/internal/base/nodefile"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
	"github.com/kubic-project/image-update-agent/internal/node/platform"
)

// builtInPath is the default config_path of containerd 2.2 and later.
const builtInPath = "/etc/containerd/certs.d:/etc/docker/certs.d"

// NoPath means that the running containerd reports no config_path.
const NoPath = "-"

// CertsD has the settings of containerd's configuration for directories of hosts.toml files.
type CertsD struct {
	root      string // prefix of paths from a containerd of this root, which its configuration does not have
	isWritten bool   // the agent's configuration names them and takes precedence: containerd's settings are not checked
	read      bool   // a configuration exists
	path      string // config_path for containerd 2.x; empty if there is none
	path1     string // config_path for containerd 1.x
	mirrors   bool   // the tables that hosts.toml has replaced are used
	client    bool   // a setting makes containerd 2.1 and later pull with their client, as earlier versions do
	err       error  // error of an unreadable part of the configuration
}

// readCertsD reads containerd's own keys.
func readCertsD(p platform.Platform, isWritten bool) CertsD {
	if isWritten {
		return CertsD{isWritten: true}
	}
	c := readContainerd(p)
	images := tableOf(c.merged()[imagesPlugin])
	registry := tableOf(anyCase(images, "registry"))
	out := CertsD{
		root: filepath.Clean("/" + p.Root), read: c.read, err: c.err,
		path: configPath(images, anyCase), mirrors: len(tableOf(anyCase(registry, "mirrors"))) > 0,
	}
	out.client = out.mirrors || pullsByClient(images, registry)
	out.path1 = out.path // of a configuration that only 2.x accepts
	if cri, runs := c.replaced(); runs {
		out.path1 = configPath(cri, lowerOrUpper)
	}
	return out
}

// configPath returns config_path from the table of a plugin.
func configPath(plugin map[string]any, valueOf settingOf) string {
	path, _ := valueOf(tableOf(valueOf(plugin, "registry")), "config_path").(string)
	return path
}

// pullsByClient checks the same settings as containerd's CheckLocalImagePullConfigs.
func pullsByClient(images, registry map[string]any) bool {
	for _, key := range []string{"use_local_image_pull", "discard_unpacked_layers", "image_pull_with_sync_fs"} {
		if is, _ := anyCase(images, key).(bool); is {
			return true
		}
	}
	disabled, written := anyCase(images, "disable_snapshot_annotations").(bool)
	downloads, limited := anyCase(images, "max_concurrent_downloads").(int64)
	return written && !disabled || limited && downloads != 3 ||
		len(tableOf(anyCase(registry, "configs"))) > 0 || len(tableOf(anyCase(registry, "auths"))) > 0
}

// Counts reports whether polls follow hosts.toml with every version of containerd: config_path names one directory, or
// the agent's configuration names them.
func (c CertsD) Counts() bool {
	return c.isWritten || c.err == nil && c.path != "" && c.path == c.path1 && !isList(c.path)
}

// IsKnown reports whether the node has a configuration of containerd.
func (c CertsD) IsKnown() bool { return c.read }

// Err returns the error of an unreadable part of the configuration, unless the running containerd reports its
// config_path (inUse).
func (c CertsD) Err(inUse string) error {
	if c.err == nil || inUse != "" {
		return nil
	}
	return fmt.Errorf("cannot read the configuration of containerd: %w", outside.Error(c.err))
}

// Path returns the config_path that a version of containerd reads from its configuration; empty if there is none.
func (c CertsD) Path(version string) string {
	if isVersion1(version) {
		return c.path1
	}
	return c.path
}

// PullsByClient reports whether a setting makes containerd 2.1 and later pull with their client, as earlier versions
// do.
func (c CertsD) PullsByClient() bool { return c.client }

// Ignored returns why a version of containerd ignores hosts.toml, or the directories in its configuration; empty if it
// follows them, or if unknown. inUse is the config_path reported by the running containerd, or NoPath; empty if it
// reports none.
func (c CertsD) Ignored(version, inUse string) string {
	own := c.Path(version)
	inUse = c.withoutRoot(inUse)
	path := cmp.Or(inUse, own)
	if path == "" && c.err == nil && c.read && !c.mirrors && isAtLeast(version, 2, 2) {
		path = builtInPath
	}
	switch {
	case c.Err(inUse) != nil:
		return c.Err(inUse).Error()
	case inUse == NoPath && own != "":
		return fmt.Sprintf("containerd runs without a config_path, but its configuration has %q: restart containerd", own)
	case inUse == NoPath:
		return "containerd runs without a config_path"
	case path == "" && c.read && version != "": // a version shows that containerd answered
		return "the configuration of containerd has no config_path"
	case isList(path) && !c.client && isAtLeast(version, 2, 1):
		return fmt.Sprintf("config_path is %q, which containerd %s reads as the name of a single directory", path, version)
	case inUse != "" && own != "" && inUse != own:
		return fmt.Sprintf("containerd runs with config_path %q, but its configuration has %q: restart containerd", inUse,
			own)
	default:
		return ""
	}
}

// withoutRoot returns a list of directories without the root prefix.
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

func isVersion1(version string) bool { return isAtLeast(version, 1, 0) && !isAtLeast(version, 2, 0) }

// isAtLeast compares a version in containerd's format ("v2.4.2", "1.6.20~ds1").
func isAtLeast(version string, major, minor int) bool {
	var x, y int
	if _, err := fmt.Sscanf(strings.TrimPrefix(version, "v"), "%d.%d", &x, &y); err != nil {
		return false
	}
	return x > major || x == major && y >= minor
}

// Unpacks returns how many layers of an image containerd unpacks at once in its own pulls (max_concurrent_unpacks, of
// 2.2 and later); 0 if its configuration does not set it.
func Unpacks(p platform.Platform) int {
	transfer := tableOf(readContainerd(p).merged()[transferPlugin])
	n, _ := anyCase(transfer, "max_concurrent_unpacks").(int64)
	return max(int(n), 0)
}

func tableOf(value any) map[string]any {
	table, _ := value.(map[string]any)
	return table
}

var errNoAuth = errors.New("auth is not the base64 of user:password")

// ContainerdLogin returns the login for a host, with its port, from containerd's configuration (registry.configs and
// registry.auths), which containerd uses if kubelet has none. k3s and RKE2 write it there from registries.yaml. Without
// a user, secret is an identity token; both are empty if there is no login. Each call reads the configuration, because
// its files may change. version returns the running version of containerd; it is called if 1.x reads another login.
func ContainerdLogin(p platform.Platform, host string, version func() string) (user, secret string, err error) {
	c := readContainerd(p)
	if c.err != nil {
		return "", "", outside.Error(c.err)
	}
	login := loginOf(tableOf(c.merged()[imagesPlugin]), host, anyCase)
	if cri, runs := c.replaced(); runs {
		if login1 := loginOf(cri, host, lowerOrUpper); login1 != login && isVersion1(version()) {
			login = login1
		}
	}
	if user, secret, err = login.parsed(); err != nil {
		return "", "", fmt.Errorf("%s: %s: %w", p.ContainerdConfig, outside.Text(host), err)
	}
	return user, secret, nil
}

// containerdLogin is the CRI plugin's AuthConfig.
type containerdLogin struct{ username, password, auth, identityToken string }

// loginOf returns the login for a host from the table of a plugin; zero if there is none. As in containerd, auths
// replaces configs. Of several endpoints with the same host, containerd uses a random one; here the last one counts.
func loginOf(plugin map[string]any, host string, valueOf settingOf) containerdLogin {
	registry := tableOf(valueOf(plugin, "registry"))
	config := tableOf(tableOf(valueOf(registry, "configs"))[host])
	auth := tableOf(valueOf(config, "auth"))
	auths := tableOf(valueOf(registry, "auths"))
	for _, endpoint := range slices.Sorted(maps.Keys(auths)) {
		if isOfHost(endpoint, host) {
			auth = tableOf(auths[endpoint])
		}
	}
	text := func(key string) string {
		value, _ := valueOf(auth, key).(string)
		return value
	}
	return containerdLogin{text("username"), text("password"), text("auth"), text("identitytoken")}
}

// isOfHost reports whether an endpoint in auths, a URL or a host, is of a host.
func isOfHost(endpoint, host string) bool {
	u, err := url.Parse(endpoint)
	if err == nil && u.Scheme != "" {
		return u.Host == host
	}
	return err == nil && endpoint == host // with an invalid endpoint, containerd's CRI plugin does not start
}

// parsed does the same as ParseAuth of containerd v2.4.2 (internal/cri/server/images/image_pull.go).
func (l containerdLogin) parsed() (user, secret string, err error) {
	switch {
	case l.username != "":
		return l.username, l.password, nil
	case l.identityToken != "":
		return "", l.identityToken, nil
	case l.auth == "":
		return "", "", nil
	}
	decoded, err := base64.StdEncoding.DecodeString(l.auth)
	user, secret, isPair := strings.Cut(string(decoded), ":")
	if err != nil || !isPair {
		return "", "", errNoAuth
	}
	return user, strings.Trim(secret, "\x00"), nil
}

// maxImports limits the files that a configuration of containerd may import.
const maxImports = 64

// containerdConfig is containerd's configuration with all imports.
type containerdConfig struct {
	files []loadedFile // in load order; empty if there is no configuration
	read  bool         // a configuration exists
	err   error        // error of unreadable parts: containerd may have other values
}

// loadedFile is the content of a file.
type loadedFile struct {
	Version int            `toml:"version"`
	Imports []string       `toml:"imports"`
	Plugins map[string]any `toml:"plugins"`
}

// readContainerd reads the configuration of a platform.
func readContainerd(p platform.Platform) (c containerdConfig) {
	pending, loaded := []string{p.ContainerdConfig}, map[string]bool{}
	for len(pending) > 0 && c.err == nil {
		path := pending[0]
		pending = pending[1:]
		switch {
		case loaded[path]:
			continue
		case len(loaded) == maxImports:
			c.err = fmt.Errorf("%s: more than %d imports", p.ContainerdConfig, maxImports)
			continue
		}
		loaded[path] = true
		file, imports, err := loadContainerd(p.Root, path)
		switch {
		case errors.Is(err, fs.ErrNotExist) && path == p.ContainerdConfig: // containerd uses its defaults
		case err != nil:
			c.read, c.err = true, err
		default:
			c.read = true
			c.files = append(c.files, file)
			pending = append(pending, imports...)
		}
	}
	return c
}

// loadContainerd reads a file, and returns its imports.
func loadContainerd(root, path string) (file loadedFile, imports []string, err error) {
	data, err := nodefile.Read(filepath.Join(root, path), maxFile)
	if err != nil {
		return file, nil, fmt.Errorf("%s: %w", path, err)
	}
	if err := toml.Unmarshal(data, &file); err != nil {
		return file, nil, fmt.Errorf("%s: %w", path, outside.Syntax("TOML", err))
	}
	for _, name := range file.Imports {
		if !filepath.IsAbs(name) {
			name = filepath.Join(filepath.Dir(path), name)
		}
		name = filepath.Clean(name)
		if !strings.Contains(name, "*") {
			imports = append(imports, name)
			continue
		}
		found, err := filepath.Glob(filepath.Join(root, name))
		if err != nil {
			return file, nil, fmt.Errorf("%s: imports: %s: %w", path, name, err)
		}
		for _, one := range found {
			imports = append(imports, "/"+strings.TrimPrefix(strings.TrimPrefix(one, filepath.Clean(root)), "/"))
		}
	}
	return file, imports, nil
}

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

// settingOf returns the value of a setting from a table; nil if there is none. containerd also accepts other spellings
// of the names of its settings, but not of names that people choose, such as hosts.
type settingOf func(table map[string]any, name string) any

// anyCase matches names as the TOML parser of containerd 2.x: in any case.
func anyCase(table map[string]any, name string) any {
	if value, is := table[name]; is {
		return value
	}
	for _, key := range slices.Sorted(maps.Keys(table)) {
		if strings.EqualFold(key, name) {
			return table[key]
		}
	}
	return nil
}

// lowerOrUpper matches names as the TOML parser of containerd 1.x: in lower case, else in upper case.
func lowerOrUpper(table map[string]any, name string) any {
	if value, is := table[name]; is {
		return value
	}
	return table[strings.ToUpper(name)]
}
