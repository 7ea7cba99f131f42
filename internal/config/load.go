// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/kubic-project/image-update-agent/internal/nodefile"
	"github.com/kubic-project/image-update-agent/internal/platform"
)

// The places of the configuration, below the root.
const (
	vendorFile = "/usr/share/image-update-agent/config.yaml"
	adminFile  = "/etc/image-update-agent/config.yaml"
	dropIns    = "/etc/image-update-agent/config.d"
)

const (
	// IntervalVariable is the environment's name for interval.
	IntervalVariable = "UPDATE_POLLING_INTERVAL"

	maxFile    = 1 << 20 // bytes of a configuration file
	maxDropIns = 256
)

// Sources are where the configuration comes from.
type Sources struct {
	// Root stands for "/" of the files read here, and of every path in the Settings; empty: the host's own.
	Root string
	// File, if set, is read in place of the admin's file and drop-ins. It is not below Root, and it must exist.
	File string
	// Interval is the value of IntervalVariable in the environment; empty: the files count.
	Interval string
}

// Config is a configuration that was read and is valid.
type Config struct {
	Settings Settings
	// Files are those that were read, the first lowest.
	Files []string
	// CertsD is what containerd says about its registry directories.
	CertsD CertsD
	// Platform is the node's.
	Platform platform.Platform
	shown    *yaml.Node // every value as written, with its origin
}

// Load reads, merges and validates. Its error has one line for each problem.
func Load(from Sources) (*Config, error) {
	w, read := walk(from)
	c, err := w.config(read)
	if err == nil {
		place := w.written("containerd.certsD").LineComment
		c.CertsD = readCertsD(c.Platform, place != defaultPlace && place != c.Platform.At(c.Platform.ContainerdConfig))
	}
	return c, err
}

// Directories returns stateDir and runtimeDir as far as they can be read, also of a configuration that is not valid: to
// show what a daemon has left there.
func Directories(from Sources) (stateDir, runtimeDir string) {
	w, _ := walk(from)
	return w.settings.StateDir, w.settings.RuntimeDir
}

// walk reads and merges the files. It returns those that it has read.
func walk(from Sources) (w *walker, read []string) {
	w = newWalker(platform.Detect(from.Root))
	node := nodeValues(w.platform)
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
		w.read(path, data)
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

// files lists the configuration's files, the lowest first.
func (w *walker) files(from Sources) []string {
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
		case strings.HasPrefix(name, "."): // an editor's or a package manager's work in progress
		case !strings.HasSuffix(name, ".yaml"):
			w.report(0, "", "not read for its name, want the suffix .yaml, or a leading dot to set it aside")
		default:
			files = append(files, w.place)
		}
	}
	return files
}

// config looks at what settings ask of one another, and gives what was read.
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
		w.unfit("grains.velum", "%s: no grain is written, as grains.enabled is false (%s)",
			w.written("grains.enabled").LineComment)
	}
	w.fitLock()
	kubelets := w.written("podManifests")
	for _, key := range []string{"templates", "stateDir", "runtimeDir"} {
		// Kubelet runs every file at or below its directory as a pod.
		dir, its := filepath.Clean(w.written(key).Value)+"/", filepath.Clean(kubelets.Value)+"/"
		if strings.HasPrefix(dir, its) || strings.HasPrefix(its, dir) {
			w.unfit(key, "%q: want a directory apart from podManifests %q (%s)", kubelets.Value, kubelets.LineComment)
		}
	}
	if bound := w.written("connectionsPerHost"); w.settings.Staging.Layers >= w.settings.ConnectionsPerHost {
		w.unfit("staging.layers", "%s: want less than connectionsPerHost %s (%s)", bound.Value, bound.LineComment)
	}
}

// unfit reports a setting that does not go with another. The first argument of the format is what was written.
func (w *walker) unfit(key, format string, args ...any) {
	in := w.written(key)
	w.place = strings.TrimSuffix(in.LineComment, fmt.Sprintf(":%d", in.Line))
	w.report(in.Line, key, format, append([]any{in.Value}, args...)...)
}

// fitLock holds the settings of the lock together.
func (w *walker) fitLock() {
	l, url := w.settings.Apply.Lock, w.written("apply.lock.url")
	tls := strings.HasPrefix(l.URL, "https:")
	for _, k := range []struct{ key, value string }{{"ca", l.CA}, {"cert", l.Cert}, {"key", l.Key}} {
		if k.value != "" && !tls {
			w.unfit("apply.lock."+k.key, "%s: want an apply.lock.url with https (%q, %s)", url.Value, url.LineComment)
		}
	}
	switch cert, key := w.written("apply.lock.cert"), w.written("apply.lock.key"); {
	case l.Cert == "" && l.Key != "":
		w.unfit("apply.lock.key", "%s: want apply.lock.cert, too (%s)", cert.LineComment)
	case l.Cert != "" && l.Key == "":
		w.unfit("apply.lock.cert", "%s: want apply.lock.key, too (%s)", key.LineComment)
	}
}
