// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gopkg.in/yaml.v3"

	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/base/window"
	"github.com/kubic-project/image-update-agent/internal/node/platform"
	"github.com/kubic-project/image-update-agent/internal/registry/registrytest"
	"github.com/kubic-project/image-update-agent/tags"
)

// Files of other programs with paths on this node.
const (
	kubeletFile    = "/var/lib/kubelet/config.yaml"
	containerdFile = "/etc/containerd/config.toml"
)

// tree creates a root directory with these files.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, content := range files {
		registrytest.Put(t, root, name, content)
	}
	return root
}

func load(t *testing.T, from Sources) *Config {
	t.Helper()
	c, err := Load(from)
	require.NoError(t, err)
	return c
}

// read returns the defaults changed by a file with that content.
func read(place, root, content string) (*Config, error) {
	w := newWalker(platform.Detect(root))
	w.read(place, []byte(content))
	return w.config(nil)
}

// TestBadFiles: the last lines of each file below testdata/bad, after "want:", are the expected problems.
func TestBadFiles(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/bad/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			data, err := os.ReadFile(file)
			require.NoError(t, err)
			path := filepath.Join(t.TempDir(), "config.yaml") // a checkout has its own file modes
			require.NoError(t, os.WriteFile(path, data, 0o600))
			wants := regexp.MustCompile(`(?m)^# want: (.*)$`).FindAllStringSubmatch(string(data), -1)
			require.NotEmpty(t, wants)

			_, err = Load(Sources{Root: t.TempDir(), File: path})
			require.Error(t, err)
			lines := strings.Split(err.Error(), "\n")
			require.Len(t, lines, len(wants), err.Error())
			for i, want := range wants {
				line, text, _ := strings.Cut(strings.ReplaceAll(want[1], "{file}", path), ": ")
				if !regexp.MustCompile(`^\d+$`).MatchString(line) {
					line, text = "", want[1]
				}
				assert.Contains(t, lines[i], text)
				assert.Regexp(t, "^"+regexp.QuoteMeta(path)+":"+line, lines[i])
			}
		})
	}
}

func TestGoodFiles(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/good/*.yaml")
	require.NoError(t, err)
	for _, file := range files {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		_, err = read(file, "/", string(data))
		require.NoError(t, err)
	}
	for name, want := range map[string]func(*Settings){
		"nothing-said.yaml":     func(*Settings) {},
		"empty.yaml":            func(*Settings) {},
		"comment.yaml":          func(*Settings) {},
		"no-final-newline.yaml": func(s *Settings) { s.NodeName = "n1" },
		"bom-crlf.yaml":         func(s *Settings) { s.Interval, s.Log.Level = 6*time.Hour, slog.LevelDebug },
	} {
		data, err := os.ReadFile("testdata/good/" + name)
		require.NoError(t, err)
		root := tree(t, map[string]string{"c.yaml": string(data)})
		got := load(t, Sources{Root: root, File: root + "/c.yaml"}).Settings
		assert.Equal(t, withRoot(t, root, want), got, name)
	}
}

// withRoot returns the defaults, changed.
func withRoot(t *testing.T, root string, change func(*Settings)) Settings {
	t.Helper()
	s := load(t, Sources{Root: root}).Settings
	change(&s)
	return s
}

// digestOfAll is the digest in testdata/good/all.yaml.
const digestOfAll = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

func TestEveryKeyReachesItsSetting(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("testdata/good/all.yaml")
	require.NoError(t, err)
	none, minor, yes := tags.Same, tags.Minor, true
	written := TagScheme{Pattern: "^(?P<version>.*)-(?P<rev>[0-9]+)$", Versions: "numeric", Prereleases: true}
	scheme, err := tags.NewScheme(written.Pattern, tags.Numeric, true)
	require.NoError(t, err)
	most, err := scheme.Parse("4.1-2")
	require.NoError(t, err)
	berlin, err := time.LoadLocation("Europe/Berlin")
	require.NoError(t, err)
	want := Settings{
		TagListInterval: 36 * time.Hour, PullPolicy: "IfNotPresent", ManagedPullPolicy: "Always", Platform: "rke2",
		StagingSpread: 20 * time.Minute, RequestsPerHour: 100, ConnectionsPerHost: 5,
		Templates: "/root/t", PodManifests: "/root/p", Rendered: "/root/s/rendered",
		Manage: []string{"kube-apiserver.yaml", "etcd.yaml"},
		Images: []release.Reference{
			{Repository: "docker.io/sles12/velum", Tag: "4.0.0"}, {Repository: "localhost:5000/a/b", Tag: "1"},
		},
		TagFiles: []string{},
		Values:   map[string]string{"sles12/velum": "4.0.0-rev1", "mariadb": "10.0", "sles12/haproxy": "null-1"},
		Rewrites: []Rewrite{{From: "sles12", To: "registry.suse.com/caasp/v4"}, {From: "docker.io", To: "mirror:5000"}},
		Repositories: []Repository{
			{Match: "*", Updates: &none, Deny: []string{}},
			{
				Match: "registry.suse.com/caasp/v4/velum", Follow: "4.0", Updates: &minor, Tags: written, Scheme: &scheme,
				Allow: []string{"4.*", "[5-6].[^0]*"}, Deny: []string{"4.0.1", digestOfAll}, Max: most, Older: &yes, Signatures: "require",
				Hold: "no: cluster is moved", HoldUntil: time.Date(2026, time.December, 24, 0, 0, 0, 0, time.Local),
			},
		},
		Containerd: Containerd{Socket: "/root/c.sock", Namespace: "moby", CertsD: []string{"/root/certs.d"}, Snapshotter: "native"},
		Staging:    Staging{Images: 3, Layers: 4, Bandwidth: 20 << 20, LeastSpeed: 2000, Timeout: 2 * time.Hour},
		Disk:       Disk{Reserve: 5_000_000, HighMark: 80}, Prune: Prune{Unstaged: true},
		Credentials: Credentials{File: "/root/auth.json", TokenServers: map[string]string{
			"mirror:5000": "auth.example.org", "[::1]:5000": "auth.example.org:8443",
		}},
		SignatureKeys: []string{"/root/keys", "/root/more"},
		Catalog: Catalog{
			Repository: "registry.example.com/catalog", Channel: "stage", Unlisted: "refuse", Expired: "warn", AllowLower: true,
			Signatures: "require", Keys: []string{"/root/k"}, RequiredKeys: 2,
		},
		CRI: CRI{Socket: "/root/cri.sock"}, Grains: Grains{Path: "/root/g"},
		Hooks: Hooks{SaltRefresh: true, SaltEvent: true, Exec: "/root/hook", Timeout: 10 * time.Minute, Webhooks: []Webhook{
			{Name: "chat", URLFile: "/root/chat.url", Format: "event"},
			{
				Name: "room-1", URL: "https://chat.example.com/rooms/1",
				Format: "text", Events: []string{"staged", "failed"}, TokenFile: "/root/token", CA: "/root/ca.pem",
			},
		}},
		Apply: Apply{
			Mode: ApplyAuto, MinSeverity: "important", Order: []string{"haproxy.yaml", "velum-*.yaml"},
			Freeze: time.Date(2026, time.December, 24, 0, 0, 0, 0, time.Local),
			Lock: Lock{
				URL: "https://lock.example.com/base", Group: "masters", ID: "zincati", Pods: "all", CA: "/root/lock/ca", Cert: "/root/lock/cert",
				Key: "/root/lock/key", Kubeconfig: "/root/etc/kubernetes/admin.conf",
			},
			Quorum: "off",
			Windows: window.Schedule{
				{Start: 2 * time.Hour, Length: time.Minute, Zone: time.Local},
				{
					Days:  []time.Weekday{time.Sunday, time.Friday, time.Saturday, time.Saturday},
					Start: 22*time.Hour + 30*time.Minute, Length: 6 * time.Hour, Zone: berlin,
				},
			},
		},
		Kubelet:  Kubelet{Pods: "https://[::1]:10250/pods"},
		Metrics:  Metrics{Listen: "[::1]:9547"},
		StateDir: "/root/s", RuntimeDir: "/root/r", ApplyTimeout: 90 * time.Second, Settle: 10 * time.Second, NodeName: "1",
		Log: Log{Level: slog.LevelWarn, Format: "json"}, LocalRegistry: LocalRegistry{Private: true},
	}
	got, err := read("all.yaml", "/root", string(data))
	require.NoError(t, err)
	assert.Equal(t, want, got.Settings)
	var file yaml.Node
	require.NoError(t, yaml.Unmarshal(data, &file))
	leaves(func(path string, f field) {
		value := at(file.Content[0], path)
		require.NotNil(t, value, "testdata/good/all.yaml sets every key: %s", path)
		if f.records() {
			for _, inner := range fields(f.Type.Elem()) {
				assert.True(t, slices.ContainsFunc(value.Content, func(record *yaml.Node) bool {
					return lookup(record, inner.name) != nil
				}), "and every key of records: %s", inner.name)
			}
		}
	})
}

// A lock in the cluster needs one line; the kubeconfig of a Lease is the platform's.
func TestLockInTheCluster(t *testing.T) {
	t.Parallel()
	const lease = "apply: {lock: {lease: kube-system/updates}}\n"
	for platform, want := range map[string]string{
		"kubeadm": "/etc/kubernetes/admin.conf", "k3s": "/etc/rancher/k3s/k3s.yaml", "rke2": "/etc/rancher/rke2/rke2.yaml",
	} {
		root := tree(t, map[string]string{adminFile: lease + "platform: " + platform + "\n"})
		l := load(t, Sources{Root: root}).Settings.Apply.Lock
		assert.Equal(t, root+want, l.Kubeconfig)
		assert.Equal(t, "kube-system/updates", l.Lease)
		assert.True(t, l.IsSet())
	}
	assert.False(t, Lock{}.IsSet())
}

func (f field) records() bool { return f.kind == "" && !f.isSection() }

// leaves visits each key that is not a section, with its dotted path.
func leaves(visit func(path string, f field)) {
	for _, f := range fields(reflect.TypeFor[Settings]()) {
		if !f.isSection() {
			visit(f.name, f)
			continue
		}
		for _, inner := range fields(f.Type) {
			visit(f.name+"."+inner.name, inner)
		}
	}
}

// at returns the node of a dotted key; nil if there is none.
func at(root *yaml.Node, path string) *yaml.Node {
	for name := range strings.SplitSeq(path, ".") {
		if root == nil {
			return nil
		}
		root = lookup(root, name)
	}
	return root
}

// The word that makes nodes reboot cannot be written by accident.
func TestVelumNeedsItsOwnWord(t *testing.T) {
	t.Parallel()
	for word, on := range map[string]bool{"off": false, `"off"`: false, "drain-and-reboot": true} {
		root := tree(t, map[string]string{"c.yaml": "grains: {velum: " + word + "}\n"})
		assert.Equal(t, on, load(t, Sources{Root: root, File: root + "/c.yaml"}).Settings.Grains.Velum, word)
	}
	for _, word := range []string{"on", "true", "yes", "drain", "Drain-and-reboot", `""`} {
		_, err := read("x", "", "grains: {velum: "+word+"}\n")
		assert.ErrorContains(t, err, "want one of off, drain-and-reboot", word)
	}
}

func TestLaterFragmentsWin(t *testing.T) {
	t.Parallel()
	root := tree(t, map[string]string{
		"usr/share/image-update-agent/config.yaml": "interval: 1h\nnodeName: vendor\nmanage: [a.yaml]\nlog: {level: debug}\n" +
			"rewrites: [{from: a, to: x}, {from: b, to: x}]\nvalues: {a: '1', b: '1'}\nrepositories: [{match: a, updates: none}, {match: b, updates: none}]\n",
		"etc/image-update-agent/config.yaml": "interval: 2h\nnodeName: admin\nmanage: [b.yaml, c.yaml]\n" +
			"repositories: [{match: b, deny: [1, 2], hold: h, until: 2026-12-24}]\n",
		"etc/image-update-agent/config.d/20-b.yaml": "interval: 4h\nlog: {format: json}\nvalues: {c: '3', a: '3'}\n" +
			"rewrites: [{from: c, to: y}, {from: a, to: y}]\n",
		"etc/image-update-agent/config.d/10-a.yaml":   "interval: 3h\nrepositories: [{match: b, tags: {versions: suse}, deny: [3]}, {match: c}]\n",
		"etc/image-update-agent/config.d/.#x.yaml":    "nonsense",
		"etc/image-update-agent/config.d/.20-b.swp":   "nonsense",
		"etc/image-update-agent/other/config.d/x.yml": "nonsense",
	})
	c := load(t, Sources{Root: root})
	s := c.Settings
	assert.Equal(t, 4*time.Hour, s.Interval)
	assert.Equal(t, "admin", s.NodeName)
	assert.Equal(t, []string{"b.yaml", "c.yaml"}, s.Manage, "a list replaces")
	assert.Equal(t, Log{Level: slog.LevelDebug, Format: "json"}, s.Log, "a section is merged")
	assert.Equal(t, map[string]string{"a": "3", "b": "1", "c": "3"}, s.Values, "a table is merged")
	assert.Equal(t, []Rewrite{{"a", "y"}, {"b", "x"}, {"c", "y"}}, s.Rewrites, "a record replaces that of its name in its place")
	shown := map[string]string{}
	for _, e := range c.Entries() {
		shown[e.Key] = e.Value
	}
	assert.Equal(t, "1", shown["values.b"], "what is below is shown too")
	assert.Equal(t, policy.Rule{
		Updates: tags.Same, Scheme: tags.SUSEOnly(), Deny: []string{"3"},
		Hold: "h", HoldUntil: time.Date(2026, 12, 24, 0, 0, 0, 0, time.Local),
	}, ruleOf(s, "b"), "entries of one match are laid over each other: a hold takes no denial away")
	at := func(name string) string { return filepath.Join(root, name) }
	assert.Equal(t, []string{
		at("usr/share/image-update-agent/config.yaml"), at("etc/image-update-agent/config.yaml"),
		at("etc/image-update-agent/config.d/10-a.yaml"), at("etc/image-update-agent/config.d/20-b.yaml"),
	}, c.Files)

	own := tree(t, map[string]string{"own.yaml": "manage: [d.yaml]\n"})
	c = load(t, Sources{Root: root, File: own + "/own.yaml"})
	assert.Equal(t, time.Hour, c.Settings.Interval, "--config replaces the admin's file and drop-ins")
	assert.Equal(t, []string{"d.yaml"}, c.Settings.Manage)
}

func TestDropInsWithAnotherSuffixAreRefused(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"x.yml", "x.yaml.bak", "x.yaml~", "x.conf", "README", "x.yaml.rpmnew"} {
		root := tree(t, map[string]string{"etc/image-update-agent/config.d/" + name: ""})
		_, err := Load(Sources{Root: root})
		require.ErrorContains(t, err, root+"/etc/image-update-agent/config.d/"+name+": not read because of its name: want the suffix .yaml")
	}
}

func TestTheEnvironmentWins(t *testing.T) {
	t.Parallel()
	root := tree(t, map[string]string{"etc/image-update-agent/config.yaml": "interval: 2h\n"})
	for value, want := range map[string]time.Duration{"": 2 * time.Hour, "0": 0, "0s": 0, "30m": 30 * time.Minute, "1h30m": 90 * time.Minute} {
		c := load(t, Sources{Root: root, Interval: value})
		assert.Equal(t, want, c.Settings.Interval, value)
	}
	assert.Equal(t, 2*time.Hour, load(t, Sources{Root: root}).Settings.Interval)
	for _, value := range []string{"12", "-1h", "-0.5s", "off", "12 h", " 12h", "1e3h", "999999999h", "1ms", "0x1h", "\x00"} {
		_, err := Load(Sources{Root: root, Interval: value})
		require.ErrorContains(t, err, fmt.Sprintf("environment UPDATE_POLLING_INTERVAL: %q: ", value))
		require.ErrorContains(t, err, "want a duration such as 12h or 30m, or 0 for off")
	}
}

func TestAllProblemsAreReportedAtOnce(t *testing.T) {
	t.Parallel()
	root := tree(t, map[string]string{
		"usr/share/image-update-agent/config.yaml":  "intervall: 1h\n",
		"etc/image-update-agent/config.yaml":        "pullPolicy: never\nlog: {level: loud}\n",
		"etc/image-update-agent/config.d/10-a.yaml": "stateDir: relative\n",
	})
	_, err := Load(Sources{Root: root, Interval: "x"})
	require.Error(t, err)
	assert.Len(t, strings.Split(err.Error(), "\n"), 5, err.Error())

	var many strings.Builder
	for i := range 100 {
		fmt.Fprintf(&many, "nonsense%d: 1\n", i)
	}
	_, err = read("x", "", many.String())
	require.Error(t, err)
	lines := strings.Split(err.Error(), "\n")
	assert.Len(t, lines, maxProblems+1)
	assert.Equal(t, "and 80 more", lines[maxProblems])
}

// The agent would read, write and remove files in the directory of everything.
func TestTheRootDirectoryIsNoSetting(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"stateDir", "runtimeDir", "podManifests", "templates"} {
		for _, path := range []string{"/", "//", "/.", "/..", "/var/..", "/var/lib/../../"} {
			root := tree(t, map[string]string{"etc/image-update-agent/config.yaml": key + ": " + path + "\n"})
			_, err := Load(Sources{Root: root})
			assert.ErrorContains(t, err, fmt.Sprintf("/etc/image-update-agent/config.yaml:1: %s: %q: want a path below /", key, path))
		}
		root := tree(t, map[string]string{"etc/image-update-agent/config.yaml": key + ": ../x\n"})
		_, err := Load(Sources{Root: root})
		assert.ErrorContains(t, err, key+": \"../x\": want an absolute path")
	}
}

func TestPathsOfTheHostHaveNoRoot(t *testing.T) {
	t.Parallel()
	s := withRoot(t, "", func(*Settings) {})
	assert.Equal(t, "/var/lib/image-update-agent", s.StateDir)
	assert.Equal(t, "/var/lib/image-update-agent/rendered", s.Rendered)
	assert.Equal(t, "/run/image-update-agent", s.RuntimeDir)
	assert.Equal(t, "/etc/kubernetes/manifests", s.PodManifests)
	assert.Equal(t, "/usr/share/caasp-container-manifests/manifests", s.Templates)
	assert.Equal(t, "/run/containerd/containerd.sock", s.Containerd.Socket)
	assert.Equal(t, "/etc/salt/grains", s.Grains.Path)
}

func TestThingsInPlaceOfAFile(t *testing.T) {
	t.Parallel()
	for _, place := range []string{vendorFile, adminFile, dropIns + "/a.yaml"} {
		root := t.TempDir()
		require.NoError(t, os.MkdirAll(root+place, 0o755))
		_, err := Load(Sources{Root: root})
		require.ErrorContains(t, err, root+place+": not a regular file")
	}
}

func TestFilesOfOtherOwnersAreRejected(t *testing.T) {
	t.Parallel()
	root := tree(t, map[string]string{"etc/image-update-agent/config.yaml": ""})
	if os.Geteuid() != 0 {
		// Only root can give a file away; then all users own the same kind of file.
		load(t, Sources{Root: root})
		return
	}
	require.NoError(t, os.Chown(root+adminFile, 4711, 0))
	_, err := Load(Sources{Root: root})
	require.ErrorContains(t, err, root+adminFile+": owned by user 4711, want root")
}

// A drop-in that cannot be read is not treated as missing.
func TestUnreadableDropInIsReported(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	require.NoError(t, os.MkdirAll(root+dropIns, 0o755))
	require.NoError(t, os.Symlink("nowhere", root+dropIns+"/a.yaml"))
	_, err := Load(Sources{Root: root})
	require.ErrorContains(t, err, dropIns+"/a.yaml: no such file or directory")
}

func TestNamedFileMustExist(t *testing.T) {
	t.Parallel()
	_, err := Load(Sources{Root: t.TempDir(), File: "/none/config.yaml"})
	require.ErrorContains(t, err, "/none/config.yaml: no such file or directory")
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestAFileInPlaceOfTheDropIns(t *testing.T) {
	t.Parallel()
	root := tree(t, map[string]string{"etc/image-update-agent/config.d": ""})
	_, err := Load(Sources{Root: root})
	require.ErrorContains(t, err, dropIns+": not a directory")
}

func TestTooManyDropIns(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	require.NoError(t, os.MkdirAll(root+dropIns, 0o755))
	for i := range maxDropIns {
		require.NoError(t, os.WriteFile(filepath.Join(root+dropIns, "."+strings.Repeat("x", i%200+1)+string(rune('a'+i/200))), nil, 0o600))
	}
	load(t, Sources{Root: root})
	require.NoError(t, os.WriteFile(root+dropIns+"/one.yaml", nil, 0o600))
	_, err := Load(Sources{Root: root})
	require.ErrorContains(t, err, "more than 256 files")
}

func TestTooManyEntries(t *testing.T) {
	t.Parallel()
	_, err := read("x", "", "manage:\n"+strings.Repeat("  - a.yaml\n", 2*maxItems+1))
	require.ErrorContains(t, err, "manage: more than 1024 entries")
}

func TestAWindowIsALineInTheMergedList(t *testing.T) {
	t.Parallel()
	root := tree(t, map[string]string{
		vendorFile: "apply: {mode: auto, windows: [{start: 02:00, length: 1h}, {start: 02:00, length: 1h}]}\n",
		adminFile:  "apply: {order: [a.yaml]}\n",
	})
	assert.Len(t, load(t, Sources{Root: root}).Settings.Apply.Windows, 2, "windows have no names, so none is repeated")

	root = tree(t, map[string]string{
		vendorFile:           "apply: {mode: auto, order: [a.yaml, b.yaml], windows: [{start: 02:00, length: 1h}]}\n",
		adminFile:            "apply: {order: [c.yaml], windows: [{start: 02:00, length: 2h, zone: UTC}, {start: 05:00, length: 1h}]}\n",
		dropIns + "/10.yaml": "apply: {freeze: 2026-12-24T18:00:00+01:00}\n",
	})
	c := load(t, Sources{Root: root})
	got := c.Settings.Apply
	assert.Equal(t, []string{"c.yaml"}, got.Order, "a list replaces")
	assert.Len(t, got.Windows, 2, "a list of windows, too")
	assert.Equal(t, 2*time.Hour, got.Windows[0].Length)
	assert.Equal(t, ApplyAuto, got.Mode, "a section is merged")
	assert.Equal(t, "2026-12-24T17:00:00Z", got.Freeze.UTC().Format(time.RFC3339))
	assert.Contains(t, c.Entries(), Entry{"apply.windows[0].zone", "UTC", root + adminFile + ":1"})

	root = tree(t, map[string]string{
		adminFile:            "apply: {mode: auto, windows: [{start: 02:00, length: 1h}]}\n",
		dropIns + "/10.yaml": "apply: {windows: []}\n",
	})
	got = load(t, Sources{Root: root}).Settings.Apply
	assert.Empty(t, got.Windows)
	open, _ := got.Windows.Open(time.Now())
	assert.True(t, open, "a drop-in can open what the admin's file closes")
}

func TestAListOfDaysIsASet(t *testing.T) {
	t.Parallel()
	for days, want := range map[string][]time.Weekday{
		"":                        {0, 1, 2, 3, 4, 5, 6},
		"days: [], ":              {0, 1, 2, 3, 4, 5, 6},
		"days: [sat, fri-sat], ":  {time.Friday, time.Saturday},
		"days: [sat, Sun, sat], ": {time.Sunday, time.Saturday},
	} {
		root := tree(t, map[string]string{adminFile: "apply: {windows: [{" + days + "start: 02:00, length: 1h}]}\n"})
		windows := load(t, Sources{Root: root}).Settings.Apply.Windows
		require.Len(t, windows, 1)
		var begins []time.Weekday
		for day := range 7 { // the 6th of December 2026 is a Sunday
			open, change := windows.Open(time.Date(2026, time.December, 6+day, 2, 0, 0, 0, time.Local))
			if open {
				begins = append(begins, time.Weekday(day))
				assert.Equal(t, time.Date(2026, time.December, 6+day, 3, 0, 0, 0, time.Local), change, "and once")
			}
		}
		assert.Equal(t, want, begins, days)
	}
}

// podLists are texts for kubelet.pods, and whether they are valid.
var podLists = map[string]bool{
	"":                                       true,
	"off":                                    true,
	"http://127.0.0.1:10255/pods":            true,
	"https://localhost:10250/pods":           true,
	"http://[::1]:10255/pods":                true,
	"http://10.0.0.5:10255/pods":             true,
	"on":                                     false,
	"127.0.0.1:10255":                        false,
	"http://127.0.0.1/pods":                  false,
	"http://127.0.0.1:0/pods":                false,
	"http://127.0.0.1:65536/pods":            false,
	"http://127.0.0.1:port/pods":             false,
	"http://127.0.0.1:10255":                 false,
	"http://127.0.0.1:10255/pods/":           false,
	"http://127.0.0.1:10255/runningpods":     false,
	"http://127.0.0.1:10255/pods?a=b":        false,
	"http://127.0.0.1:10255/pods?":           false,
	"http://127.0.0.1:10255/pods#a":          false,
	"http://user:secret@127.0.0.1:1025/pods": false,
	"unix:///run/kubelet.sock":               false,
	"ftp://127.0.0.1:10255/pods":             false,
	"http://kubelet.example.org:10255/pods":  false,
	"http://localhost.example.org:1025/pods": false,
	"http://0.0.0.0:10255/pods":              false,
	"http://[::]:10255/pods":                 false,
	"http://224.0.0.1:10255/pods":            false,
	"http://[fe80::1%25eth0]:10255/pods":     false,
	"http://:10255/pods":                     false,
	"http://127.0.0.1:10255/%zz":             false,
}

func TestPodList(t *testing.T) {
	t.Parallel()
	for text, allowed := range podLists {
		_, err := read("x", "", fmt.Sprintf("kubelet: {pods: %q}", text))
		assert.Equal(t, allowed, err == nil, text)
	}
}

// readOnlyPorts map kubelet's configurations to the URL of its list of pods.
var readOnlyPorts = map[string]string{
	"readOnlyPort: 10255\n":                      "http://127.0.0.1:10255/pods",
	"readOnlyPort: 10255\naddress: 0.0.0.0\n":    "http://127.0.0.1:10255/pods",
	"readOnlyPort: 10255\naddress: '::'\n":       "http://[::1]:10255/pods",
	"readOnlyPort: 10255\naddress: 10.0.0.5\n":   "http://10.0.0.5:10255/pods",
	"readOnlyPort: 10255\naddress: fd00::5\n":    "http://[fd00::5]:10255/pods",
	"readOnlyPort: 10255\naddress: node\n":       "",
	"readOnlyPort: 10255\naddress: fe80::1%eth0": "",
	"readOnlyPort: 0\n":                          "",
	"readOnlyPort: -1\n":                         "",
	"readOnlyPort: 65536\n":                      "",
	"readOnlyPort: open\n":                       "",
	"port: 10250\n":                              "",
	"readOnlyPort: [":                            "",
}

func TestReadOnlyPods(t *testing.T) {
	t.Parallel()
	for text, want := range readOnlyPorts {
		root := tree(t, map[string]string{kubeletFile: text})
		assert.Equal(t, want, load(t, Sources{Root: root}).Settings.Kubelet.Pods, text)
	}
}

// An empty value in any file means kubelet's own port; `config show` prints the effective value, which can be read
// back.
func TestEmptyPodListIsKubelets(t *testing.T) {
	t.Parallel()
	const kubelet, own = "readOnlyPort: 10255\n", "kubelet: {pods: 'http://[::1]:1/pods'}"
	for name, c := range map[string]struct {
		files       map[string]string
		want, shown string
	}{
		"nobody says":  {nil, "", ""},
		"empty over":   {map[string]string{kubeletFile: kubelet, vendorFile: own, adminFile: "kubelet: {pods: ''}"}, "http://127.0.0.1:10255/pods", "http://127.0.0.1:10255/pods"},
		"ours wins":    {map[string]string{kubeletFile: kubelet, adminFile: own}, "http://[::1]:1/pods", "http://[::1]:1/pods"},
		"off":          {map[string]string{kubeletFile: kubelet, adminFile: "kubelet: {pods: off}"}, "", "off"},
		"port is shut": {map[string]string{kubeletFile: "readOnlyPort: 0"}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := tree(t, c.files)
			got := load(t, Sources{Root: root})
			assert.Equal(t, c.want, got.Settings.Kubelet.Pods)
			for _, entry := range got.Entries() {
				if entry.Key == "kubelet.pods" {
					assert.Equal(t, c.shown, entry.Value)
				}
			}
			shown, err := got.YAML()
			require.NoError(t, err)
			again := load(t, Sources{Root: tree(t, map[string]string{kubeletFile: c.files[kubeletFile], adminFile: string(shown)})})
			assert.Equal(t, got.Settings.Kubelet, again.Settings.Kubelet)
		})
	}
}

// FuzzConfig: any file is either rejected with its name in each line, or gives settings that `config show` prints so
// that they can be read back.
func FuzzConfig(f *testing.F) {
	for _, pattern := range []string{"testdata/bad/*.yaml", "testdata/good/*.yaml", "../../../packaging/config.yaml"} {
		files, err := filepath.Glob(pattern)
		require.NoError(f, err)
		require.NotEmpty(f, files)
		for _, file := range files {
			data, err := os.ReadFile(file)
			require.NoError(f, err)
			f.Add(data)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		w := newWalker(platform.Detect("/root"))
		w.read("file", data)
		if len(w.problems) > 0 {
			_, err := w.config(nil)
			for line := range strings.SplitSeq(err.Error(), "\n") {
				require.Regexp(t, `^(file(:\d+)?: |and \d+ more$)`, line)
			}
			return
		}
		c, err := w.config(nil)
		if err != nil {
			return // directories that overlap
		}
		shown, err := c.YAML()
		require.NoError(t, err)
		again, err := read("shown", "/root", string(shown))
		require.NoError(t, err, string(shown))
		require.Equal(t, c.Settings, again.Settings)
	})
}
