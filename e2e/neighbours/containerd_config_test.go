// SPDX-License-Identifier: Apache-2.0

package neighbours

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/internal/node/config"
)

// containerdConfigs is the number of configurations that each version reads.
const containerdConfigs = 400

// TestContainerdsConfigurationIsReadAsByContainerd checks that the agent reads the directories of hosts.toml files and
// the kind of pull from containerd's configuration as containerd does. It skips a configuration with which containerd
// does not start.
func TestContainerdsConfigurationIsReadAsByContainerd(t *testing.T) {
	t.Parallel()
	for part, version := range containerds {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			rounds, r := inputs(t, containerdConfigs)
			c, top := startContainerd(t, "configuration", part), t.TempDir()
			seen, unread, refused := map[string]int{}, 0, 0
			for n := range rounds {
				root, files := filepath.Join(top, fmt.Sprint(n)), newContainerdFiles(r, version).all()
				for name, text := range files {
					put(t, filepath.Join(root, name), text)
				}
				theirs := c.ask(containerdAsked{Root: root}, input{dirs: []string{root}})
				ours, err := config.Load(config.Sources{Root: root})
				require.NoError(t, err)
				about := fmt.Sprintf("%d: %s", n, shown(files))
				switch problem := ours.CertsD.Err(""); {
				case theirs.Err != "":
					refused++
				case problem != nil:
					unread++
					assert.True(t, onPurposeUnread(version, problem.Error()), "%v\n%s", problem, about)
				default:
					seen[theirs.Config.ConfigPath]++
					assert.Equal(t, theirs.Config.ConfigPath, ours.CertsD.Path(version), about)
					if strings.HasPrefix(version, "v2") {
						assert.Equal(t, theirs.Config.ClientPull, ours.CertsD.PullsByClient(), about)
						assert.Equal(t, max(1, theirs.Config.Unpacks), max(1, config.Unpacks(ours.Platform)), about)
					}
				}
				if t.Failed() && !testing.Verbose() {
					return
				}
			}
			t.Logf("refused: %d, not read on purpose: %d, read: %v", refused, unread, seen)
			assert.Less(t, refused+unread, rounds*3/4, "enough are read")
			assert.Greater(t, len(seen), 5, "they differ")
		})
	}
}

// onPurposeUnread reports whether the agent intentionally rejects a configuration that this containerd reads: the
// parser of 1.x accepts files that are not TOML 1.0, for example with a duplicate table.
func onPurposeUnread(version, problem string) bool {
	return strings.HasPrefix(version, "1.") && strings.Contains(problem, ": not TOML")
}

// containerdFiles generates configurations as people and packages write them, also with mistakes.
type containerdFiles struct {
	r  *rand.Rand
	v1 bool // for containerd 1.x
	// key is the spelling of config_path in all files: of two spellings containerd uses the last one in the alphabet
	key string
}

func newContainerdFiles(r *rand.Rand, version string) containerdFiles {
	f := containerdFiles{r, strings.HasPrefix(version, "1."), ""}
	f.key = f.rarely(30, "config_path", "CONFIG_PATH", "Config_Path")
	return f
}

func (f containerdFiles) one(of ...string) string { return oneOf(f.r, of...) }

func (f containerdFiles) rarely(times int, usual string, odd ...string) string {
	if f.r.IntN(times) > 0 {
		return usual
	}
	return f.one(odd...)
}

// all returns a main file and the files that it may import, by their names below the root.
func (f containerdFiles) all() map[string]string {
	version := f.one("1", "2", "2", "2", "3", "3", "3", "4", "")
	if f.v1 {
		version = f.one("1", "2", "2", "2", "")
	}
	files := map[string]string{}
	for _, name := range []string{"conf.d/a.toml", "conf.d/b.toml", "conf.d/c.conf", "conf.d/[d].toml", "nested.toml", "config.d/e.toml"} {
		files["etc/containerd/"+name] = f.text(version, f.rarely(4, "", "../nested.toml", "../conf.d/b.toml", "/etc/containerd/config.toml", "a.toml", "*.toml"))
	}
	files["opt/f.toml"] = f.text(version, "")
	if f.r.IntN(30) > 0 {
		files["etc/containerd/config.toml"] = f.text(version, f.rarely(2, "/etc/containerd/conf.d/*.toml",
			"", "conf.d/*.toml", "conf.d/b.toml", "./conf.d/../conf.d/*", "/etc/containerd/conf.d/gone.toml", "/etc/containerd/gone.d/*.toml",
			"/etc/containerd/*/*.toml", "conf.d/?.toml", "conf.d/[ab].toml", "conf.d/[d].toml", "conf.d/[a*.toml", "../../opt/f.toml", "//opt//f.toml",
			"config.toml", "conf.d", "conf.d/a.toml', 'conf.d/b.toml", "conf.d/b.toml', '/etc/containerd/conf.d/a.toml", "nested.toml', 'nested.toml", "/opt/*.toml', 'config.d/e.toml"))
	}
	return files
}

// text returns one file: the lines before the first table, and the tables.
func (f containerdFiles) text(version, imports string) string {
	version = f.rarely(16, version, "1", "2", "3", "4", "", "", "5", "0", "'2'", "+2", "0x2")
	var head []string
	if version != "" {
		head = append(head, "version = "+version)
	}
	if imports != "" {
		head = append(head, f.rarely(8, "imports = ['"+imports+"']", "imports = [\n  '"+imports+"', # all\n]", "imports = '"+imports+"'"))
	}
	if f.r.IntN(6) == 0 {
		head = append(head, f.one("root = '/var/lib/containerd'", "oom_score = -999", "disabled_plugins = []", "required_plugins = ['io.containerd.grpc.v1.cri']",
			"unknown = 1", "# config_path = '/commented'", "subreaper = true", "plugin_dir = ''", "temp = \"\"", "grpc.address = '/run/containerd/containerd.sock'"))
	}
	f.r.Shuffle(len(head), func(i, j int) { head[i], head[j] = head[j], head[i] })
	plugin := f.plugin(version)
	more, tables := f.registry(plugin)
	if more != "" {
		head = append(head, more)
	}
	if len(tables) > 0 && strings.HasSuffix(tables[0], "\n") && f.r.IntN(2) == 0 || f.r.IntN(20) == 0 {
		tables = append(tables, f.settings(plugin))
		f.r.Shuffle(len(tables), func(i, j int) { tables[i], tables[j] = tables[j], tables[i] })
	}
	text := strings.Join(append(head, tables...), "\n") + "\n"
	switch f.r.IntN(60) {
	case 0:
		text = strings.ReplaceAll(text, "\n", "\r\n")
	case 1:
		text = "\ufeff" + text
	case 2:
		text = ""
	case 3:
		text += "[plugins]\n"
	case 4:
		text += f.one("[", "= 1\n", "a = \n", "[a]\n[a]\n", "x = 1\nx = 2\n", "\x00", "'''")
	}
	return text
}

// plugin returns the name of CRI's plugin as a quoted key.
func (f containerdFiles) plugin(version string) string {
	name := map[string]string{"": "cri", "1": "cri", "2": "io.containerd.grpc.v1.cri"}[version]
	if name == "" {
		name = "io.containerd.cri.v1.images"
	}
	name = f.rarely(16, name, "cri", "io.containerd.grpc.v1.cri", "io.containerd.cri.v1.images", "io.containerd.cri.v1.runtime", "io.containerd.grpc.v1.other")
	if name == "cri" {
		return f.rarely(3, name, `"cri"`, "'cri'")
	}
	quoted := f.one(`"`+name+`"`, "'"+name+"'")
	if f.v1 {
		return f.rarely(30, quoted, name) // the parser of 1.6 does not decode an escape in a key
	}
	return f.rarely(30, quoted, name, "\"io\\u002econtainerd.grpc.v1.cri\"")
}

func (f containerdFiles) path() string {
	return f.rarely(4, f.one("'/etc/containerd/certs.d'", "'/a'", "\"/b\"", "\"/c\"", "'/d'"), "''", "\"\"", "'/e:/f'", "'''/g'''", "\"\"\"\n/h\"\"\"",
		`"\u002fi"`, "\"/j\\\\k\"", "'relative'", "3", "true", "'/m/'", "\"/n\" # comment")
}

// registry returns the table with config_path, or an equivalent line for the head of the file. Other tables of the
// plugin may follow a table.
func (f containerdFiles) registry(plugin string) (head string, tables []string) {
	path, table := f.key+" = "+f.path(), "[plugins."+plugin+".registry]\n"
	switch f.r.IntN(20) {
	case 0:
		return "", []string{"[plugins]\n  [plugins." + plugin + "]\n    [plugins." + plugin + ".registry]\n      " + path}
	case 1:
		return "", []string{"[plugins." + plugin + "]\nregistry = { " + path + " }"}
	case 2:
		return "", []string{"[plugins." + plugin + "]\nregistry." + path}
	case 3:
		return "plugins." + plugin + ".registry." + path, nil
	case 4:
		return "", []string{"[plugins]\n" + plugin + ".registry." + path}
	case 5:
		return "", []string{"[ plugins . " + plugin + " . registry ]\n\t" + strings.Replace(path, " = ", "=", 1)}
	case 6:
		return "", []string{table, "[plugins." + plugin + ".registry.mirrors]\n" + f.one("", "[plugins."+plugin+".registry.mirrors.\"docker.io\"]\nendpoint = ['https://m.example']")}
	case 7:
		return "", []string{table + path + "\n", "[plugins." + plugin + ".registry." + f.one("headers]\nX-A = ['b']", "auths]", "configs]",
			"configs.\"a.example\".tls]\ninsecure_skip_verify = true", "mirrors]", "auths.\"https://a.example\"]\nusername = 'u'")}
	case 8:
		return "", nil
	default:
		return "", []string{table + path + "\n"}
	}
}

// settings returns an unrelated table of the plugin.
func (f containerdFiles) settings(plugin string) string {
	switch f.r.IntN(6) {
	case 0, 1:
		return "[plugins." + plugin + ".containerd]\n" + f.one("snapshotter = 'native'", "discard_unpacked_layers = true", "discard_unpacked_layers = false", "disable_snapshot_annotations = false",
			"default_runtime_name = 'runc'", "disable_snapshot_annotations = true") +
			f.rarely(2, "", "\n[plugins."+plugin+".containerd.runtimes]", "\n[plugins."+plugin+".containerd.runtimes.runc]\nruntime_type = 'io.containerd.runc.v2'")
	case 2:
		return "[plugins.'io.containerd.transfer.v1.local']\n" + f.one("max_concurrent_unpacks = 4", "max_concurrent_unpacks = 0", "max_concurrent_unpacks = 1", "config_path = '/transfer'",
			"max_concurrent_downloads = 7")
	default:
		return "[plugins." + plugin + "]\n" + f.one("max_concurrent_downloads = 3", "max_concurrent_downloads = 5", "max_concurrent_downloads = 0", "sandbox_image = 'p:1'",
			"use_local_image_pull = true", "use_local_image_pull = false", "image_pull_with_sync_fs = true", "image_pull_with_sync_fs = false",
			"disable_snapshot_annotations = false", "disable_snapshot_annotations = true", "discard_unpacked_layers = true", "snapshotter = 'native'", "snapshotter = ''",
			"config_path = '/wrong'", "stats_collect_period = 1")
	}
}

// shown formats all files of a configuration for a message.
func shown(files map[string]string) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintf(&b, "--- %s\n%s", name, files[name])
	}
	return b.String()
}
