// SPDX-License-Identifier: Apache-2.0

// Package config reads the agent's configuration, strictly.
//
// A setting is defined in one place: a field of Settings or of one of its sections, whose tags are the key (yaml), the
// kind of value (is) and the default. One walker reads the defaults, the values of the node's other programs, the
// vendor's file below /usr/share, the admin's below /etc, its drop-ins in the order of their names, and the environment
// into the same Settings; the last one wins. A text or a plain list replaces the earlier one. Named things (values by
// repository, repositories by match, rewrites by from) are merged by name. In addition to the Settings the walker keeps
// the output of `config show`: each value as written, and its origin.
//
// Nothing is ignored: an unknown or repeated key, a wrong type, an invalid value, or a drop-in with another suffix is a
// problem, reported with file, line and a correction. All problems of all files are reported at once.
package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/kubic-project/image-update-agent/internal/base/nodefile"
	"github.com/kubic-project/image-update-agent/internal/node/platform"
)

// The places of the configuration, below the root.
const (
	vendorFile = "/usr/share/image-update-agent/config.yaml"
	adminFile  = "/etc/image-update-agent/config.yaml"
	dropIns    = "/etc/image-update-agent/config.d"
)

const (
	// IntervalVariable is the environment variable for interval.
	IntervalVariable = "UPDATE_POLLING_INTERVAL"

	maxFile    = 1 << 20 // bytes of a configuration file
	maxDropIns = 256
)

// Sources are the sources of the configuration.
type Sources struct {
	// Root replaces "/" for the files read here, and for every path in the Settings; empty: the host's root.
	Root string
	// File, if set, is read instead of the admin's file and drop-ins. It is not below Root, and it must exist.
	File string
	// Defaults reads no file of the agent's own: the settings are those of the node.
	Defaults bool
	// Interval is the value of IntervalVariable in the environment; empty: the files count.
	Interval string
	// Command says what kubelet's unit starts; nil: it is not known.
	Command Asks
}

// Config is a valid configuration.
type Config struct {
	Settings Settings
	// Files are the files that were read, in ascending priority.
	Files []string
	// CertsD has containerd's settings for its registry directories.
	CertsD CertsD
	// Platform is the node's.
	Platform platform.Platform
	shown    *yaml.Node // every value as written, with its origin
	// isNodes: podManifests is from the node's configuration, or the default.
	isNodes bool
	ask     Asks
}

// Load reads, merges and validates. Its error has one line per problem.
func Load(from Sources) (*Config, error) {
	w, read := walk(from)
	c, err := w.config(read)
	if err == nil {
		place := w.written("containerd.certsD").LineComment
		isDefault := strings.HasPrefix(place, defaultPlace)
		c.ask = from.Command
		c.isNodes = w.written("podManifests").Line == 0
		c.CertsD = readCertsD(c.Platform, !isDefault && place != c.Platform.At(c.Platform.ContainerdConfig))
	}
	return c, err
}

// Directories returns stateDir and runtimeDir as far as they can be read, even from an invalid configuration: to reach
// the daemon. They are empty if nothing of from.File can be read: it may name others.
func Directories(from Sources) (stateDir, runtimeDir string) {
	w, _ := walk(from)
	if w.lost {
		return "", ""
	}
	return w.settings.StateDir, w.settings.RuntimeDir
}

// walk reads and merges the files, and returns the ones that it read. The defaults are those of the platform in the
// files: if that is not the detected one, the files are read a second time.
func walk(from Sources) (w *walker, read []string) {
	p := findPlatform(from.Root, "", from.Command)
	w, read = walkOn(p, from)
	if named := w.settings.Platform; named != "" && named != p.Name {
		w, read = walkOn(findPlatform(from.Root, named, from.Command), from)
	}
	return w, read
}

func walkOn(p platform.Platform, from Sources) (w *walker, read []string) {
	w = newWalker(p)
	node := nodeValues(w.platform, from.Command)
	for _, n := range node {
		w.offer(n)
	}
	for _, path := range w.files(from) {
		data, err := nodefile.Read(path, maxFile)
		required := path == from.File || filepath.Dir(path) == from.Root+dropIns
		if !required && errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if w.place = path; err != nil {
			w.report(0, "", "%w", err)
		}
		isRead := w.read(path, data)
		w.lost = w.lost || !isRead && path == from.File
		read = append(read, path)
	}
	if from.Interval != "" {
		w.set("interval", "environment "+IntervalVariable, from.Interval)
	}
	for _, n := range node {
		w.resolve(n)
	}
	return w, read
}

// files lists the configuration's files, in ascending priority.
func (w *walker) files(from Sources) []string {
	if from.Defaults {
		return nil
	}
	files := []string{from.Root + vendorFile, cmp.Or(from.File, from.Root+adminFile)}
	dir := from.Root + dropIns
	if from.File != "" {
		return files
	}
	entries, err := os.ReadDir(dir) // sorted by name
	if err == nil && len(entries) > maxDropIns {
		entries, err = nil, fmt.Errorf("more than %d files", maxDropIns)
	}
	if w.place = dir; err != nil && !errors.Is(err, fs.ErrNotExist) {
		w.report(0, "", "%w", nodefile.Plain(err))
	}
	for _, entry := range entries {
		w.place = filepath.Join(dir, entry.Name())
		switch name := entry.Name(); {
		case strings.HasPrefix(name, "."): // a temporary file of an editor or a package manager
		case !strings.HasSuffix(name, ".yaml"):
			w.report(0, "", "not read because of its name: want the suffix .yaml, or a leading dot to disable it")
		default:
			files = append(files, w.place)
		}
	}
	return files
}

// config checks the dependencies between settings and returns the result.
func (w *walker) config(files []string) (*Config, error) {
	if len(w.problems) == 0 {
		w.fitTogether()
	}
	if len(w.problems) > 0 {
		return nil, w.problems
	}
	w.settings.Rendered = filepath.Join(w.settings.StateDir, "rendered")
	return &Config{Settings: w.settings, Files: files, Platform: w.platform, shown: w.shown}, nil
}

func (w *walker) fitTogether() {
	if g := w.settings.Grains; g.Velum && !g.Enabled {
		w.unfit("grains.velum", "%s: has no effect, because grains.enabled is false (%s)",
			w.written("grains.enabled").LineComment)
	}
	if c := w.settings.Catalog; w.settings.Apply.MinSeverity != "" && (c.Repository == "" || c.Signatures != "require") {
		w.unfit("apply.minSeverity", "%s: needs a verified release catalog: set catalog.repository (%q, %s) and "+
			"catalog.signatures: require (%s)", c.Repository, w.written("catalog.repository").LineComment,
			w.written("catalog.signatures").LineComment)
	}
	w.fitLock()
	kubelets := w.written("podManifests")
	for _, key := range []string{"templates", "stateDir", "runtimeDir"} {
		// Kubelet runs every file at or below its directory as a pod.
		dir, its := filepath.Clean(w.written(key).Value)+"/", filepath.Clean(kubelets.Value)+"/"
		if strings.HasPrefix(dir, its) || strings.HasPrefix(its, dir) {
			w.unfit(key, "%q: want a directory other than podManifests %q (%s)", kubelets.Value, kubelets.LineComment)
		}
	}
	if bound := w.written("connectionsPerHost"); w.settings.Staging.Layers >= w.settings.ConnectionsPerHost {
		w.unfit("staging.layers", "%s: want less than connectionsPerHost %s (%s)", bound.Value, bound.LineComment)
	}
}

// fitCluster checks that a lock in the cluster has no settings of a lock server.
func (w *walker) fitCluster() {
	keys := fields(reflect.TypeFor[Lock]())
	isDefault := func(name string) bool {
		f, _ := find(keys, name)
		return w.written("apply.lock."+name).Value == f.defaultOn(w.platform)
	}
	if isDefault("lease") {
		if !isDefault("kubeconfig") {
			w.unfit("apply.lock.kubeconfig", "%s: has no effect without apply.lock.lease")
		}
		return
	}
	set := w.written("apply.lock.lease")
	for _, name := range []string{"url", "group", "id"} {
		if !isDefault(name) {
			w.unfit("apply.lock."+name, "%s: belongs to a lock server, but apply.lock.lease is set (%s)",
				set.LineComment)
		}
	}
}

// unfit reports a setting that conflicts with another. The first argument of the format is the written value.
func (w *walker) unfit(key, format string, args ...any) {
	in := w.written(key)
	w.place = strings.TrimSuffix(in.LineComment, fmt.Sprintf(":%d", in.Line))
	w.report(in.Line, key, format, append([]any{in.Value}, args...)...)
}

// fitLock checks the settings of the lock together.
func (w *walker) fitLock() {
	w.fitCluster()
	l, url := w.settings.Apply.Lock, w.written("apply.lock.url")
	tls := strings.HasPrefix(l.URL, "https:")
	for _, k := range []struct{ key, value string }{{"ca", l.CA}, {"cert", l.Cert}, {"key", l.Key}} {
		if k.value != "" && !tls {
			w.unfit("apply.lock."+k.key, "%s: want an apply.lock.url with https (%q, %s)", url.Value, url.LineComment)
		}
	}
	switch cert, key := w.written("apply.lock.cert"), w.written("apply.lock.key"); {
	case l.Cert == "" && l.Key != "":
		w.unfit("apply.lock.key", "%s: also set apply.lock.cert (%s)", cert.LineComment)
	case l.Cert != "" && l.Key == "":
		w.unfit("apply.lock.cert", "%s: also set apply.lock.key (%s)", key.LineComment)
	}
}

// nodeValue is a value from another program on the node. It overrides the defaults, and every file of the agent
// overrides it.
type nodeValue struct {
	key, place, text string
	asks             string // the text that requests the node's value in any file
}

// nodeValues are kubelet's staticPodPath, imageGCHighThresholdPercent and readOnlyPort, and containerd's config_path. A
// file that is missing, or that its owner could not read either, has no value: it is not the agent's to report.
func nodeValues(p platform.Platform, ask Asks) []nodeValue {
	k := ReadKubelet(p, ask)
	return []nodeValue{
		{key: "podManifests", place: k.places["staticPodPath"], text: k.values["staticPodPath"]},
		{key: "containerd.certsD", place: p.At(p.ContainerdConfig), text: readCertsD(p, false).path},
		{
			key: "disk.highMark", place: k.places["imageGCHighThresholdPercent"], text: k.values["imageGCHighThresholdPercent"],
			asks: "0",
		},
		{key: "kubelet.pods", place: k.places["readOnlyPort"], text: k.readOnlyPods()},
	}
}

// offer sets the node's value, at the priority below the agent's files.
func (w *walker) offer(n nodeValue) {
	f, _ := w.field(n.key)
	if _, err := w.convert(f, n.text); err == nil && n.text != n.asks {
		w.set(n.key, n.place, n.text)
	}
}

// resolve replaces the text that requests the node's value with that value, or with the default.
func (w *walker) resolve(n nodeValue) {
	if w.written(n.key).Value == n.asks {
		f, _ := w.field(n.key)
		w.set(n.key, defaultPlace, f.defaultOn(w.platform))
		w.offer(n)
	}
}

// readOnlyPods returns the URL of kubelet's list of pods on its read-only port, which is off by default, and listens on
// its address: by default on all of the node's.
func (k KubeletConfig) readOnlyPods() string {
	address := k.values["address"]
	switch ip, _ := netip.ParseAddr(address); {
	case address == "", ip == netip.IPv4Unspecified():
		address = "127.0.0.1"
	case ip == netip.IPv6Unspecified():
		address = "::1"
	}
	return "http://" + net.JoinHostPort(address, k.values["readOnlyPort"]) + "/pods"
}

// Problem is one problem of a configuration.
type Problem struct {
	Place   string `json:"place"` // a file, or the environment variable; empty if there is no single place
	Line    int    `json:"line"`  // 0 if there is none
	Problem string `json:"problem"`
	cause   error
}

func (p Problem) Error() string {
	return strings.TrimPrefix(origin(p.Place, p.Line)+": "+p.Problem, ": ")
}

func (p Problem) Unwrap() error { return p.cause }

// origin returns the place of a value. Line 0 is a place without lines.
func origin(place string, line int) string {
	return strings.TrimSuffix(place+":"+strconv.Itoa(line), ":0")
}

// problems are the error of Load, in order: one line each.
type problems []Problem

// maxProblems limits a report: a file with more is not a configuration.
const maxProblems = 20

func (p problems) Error() string {
	var lines []string
	for _, one := range ProblemsOf(p) {
		lines = append(lines, one.Error())
	}
	return strings.Join(lines, "\n")
}

// Is reports whether target is the cause of a problem.
func (p problems) Is(target error) bool {
	return slices.ContainsFunc(p, func(one Problem) bool { return errors.Is(one.cause, target) })
}

// ProblemsOf returns the problems of an error of Load, in order. Any other error becomes one problem.
func ProblemsOf(err error) []Problem {
	found, is := errors.AsType[problems](err)
	switch more := len(found) - maxProblems; {
	case more > 0:
		return append(found[:maxProblems:maxProblems], Problem{Problem: fmt.Sprintf("and %d more", more)})
	case !is && err != nil:
		return []Problem{{Problem: err.Error()}}
	}
	return found
}

// Entry is one merged value and its origin.
type Entry struct {
	// Key has the form "log.level", "manage[0]", "values.sles12/velum" or "repositories[0].deny[1]".
	Key    string `json:"key"`
	Value  string `json:"value"`  // as written, without the root
	Origin string `json:"origin"` // "file:line", "environment NAME" or "default"
}

// Entries lists the merged values in the order of the settings. Empty values, such as a list without items, have no
// entry.
func (c *Config) Entries() []Entry { return entries("", c.shown) }

func entries(path string, node *yaml.Node) []Entry {
	var found []Entry
	switch node.Kind {
	case yaml.MappingNode:
		for i := 0; i < len(node.Content); i += 2 {
			found = append(found, entries(join(path, node.Content[i].Value), node.Content[i+1])...)
		}
	case yaml.SequenceNode:
		for i, item := range node.Content {
			found = append(found, entries(fmt.Sprintf("%s[%d]", path, i), item)...)
		}
	default:
		found = append(found, Entry{Key: path, Value: node.Value, Origin: node.LineComment})
	}
	return found
}

// YAML returns the merged configuration as one file, each value with its origin in a comment. It can be read back to
// the same Settings.
func (c *Config) YAML() ([]byte, error) {
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	err := encoder.Encode(c.shown)
	return out.Bytes(), err
}
