// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/kubic-project/image-update-agent/agent"
)

// Settings are the whole configuration, validated. Each field is the key of
// the same name, explained in packaging/config.yaml. Every path is absolute
// and has the root before it.
type Settings struct {
	// Interval is the time between two polls; 0: polling is off.
	Interval time.Duration
	// TagListInterval is the least time between two lists of a repository's tags.
	TagListInterval time.Duration
	// ConfirmAfter is how long after the first reading of a changed digest it is
	// read again before it counts; 0: one reading is enough.
	ConfirmAfter time.Duration
	// StagingSpread is the time over which the nodes of a fleet begin to stage
	// what a poll has found; 0: at once.
	StagingSpread time.Duration
	// RequestsPerHour bounds the requests to all registries together; 0: nothing
	// does.
	RequestsPerHour int
	// ConnectionsPerHost bounds the connections to one registry host.
	ConnectionsPerHost int
	// PullPolicy is what rendering a template writes: "Always" or "IfNotPresent".
	PullPolicy string
	// ManagedPullPolicy is the same for pod manifests without a template; empty: they
	// keep their own.
	ManagedPullPolicy string
	// Templates is the directory of the packages' pod manifests.
	Templates string
	// PodManifests is kubelet's directory (staticPodPath).
	PodManifests string
	// Rendered is where rendered files wait for approval: below StateDir.
	Rendered string
	// Manage are the file names in PodManifests that may be changed although
	// they have no template.
	Manage []string
	// Images are followed although no pod manifest uses them.
	Images []agent.Reference
	// Values are tags for placeholders, by repository as the template writes it.
	// They win over the tag files.
	Values map[string]string
	// TagFiles are the directories of the image packages' tag files.
	TagFiles []string
	// Rewrites replace the beginning of repositories, in this order.
	Rewrites []Rewrite
	// Repositories are the policies as written; Policy applies them.
	Repositories []Repository
	Containerd   Containerd
	Staging      Staging
	Disk         Disk
	Prune        Prune
	Credentials  Credentials
	// SignatureKeys are the directories of the public keys that signatures are
	// verified with.
	SignatureKeys []string
	CRI           CRI
	Grains        Grains
	Hooks         Hooks
	Apply         Apply
	Kubelet       Kubelet
	// StateDir keeps the record; it survives a reboot and a rollback of the OS.
	StateDir string
	// RuntimeDir has the sockets and the status file.
	RuntimeDir string
	// ApplyTimeout is how long a pod may take to run what was applied.
	ApplyTimeout time.Duration
	// Settle is how long it must then run without a restart, to be proved; 0: not
	// at all.
	Settle time.Duration
	// NodeName is the node's name in Kubernetes; empty: not known.
	NodeName string
	Metrics  Metrics
	Log      Log
}

// settings is the third step. What it converts was checked in the first.
func settings(merged fragment, root string) (Settings, error) {
	r := reader{merged: merged, root: root}
	stateDir := r.path("stateDir")
	s := Settings{
		Interval:           r.duration("interval"),
		TagListInterval:    r.duration("tagListInterval"),
		ConfirmAfter:       r.duration("confirmAfter"),
		StagingSpread:      r.duration("stagingSpread"),
		RequestsPerHour:    r.number("requestsPerHour"),
		ConnectionsPerHost: r.number("connectionsPerHost"),
		PullPolicy:         merged["pullPolicy"].text,
		ManagedPullPolicy:  merged["managedPullPolicy"].text,
		Templates:          r.path("templates"),
		PodManifests:       r.path("podManifests"),
		Rendered:           filepath.Join(stateDir, "rendered"),
		Manage:             r.texts("manage"),
		Images:             r.images("images"),
		Values:             r.table("values"),
		TagFiles:           r.paths("tagFiles"),
		Rewrites:           r.rewrites("rewrites"),
		Repositories:       r.repositories("repositories"),
		Containerd: Containerd{
			Socket:      r.path("containerd.socket"),
			Namespace:   merged["containerd.namespace"].text,
			CertsD:      r.split("containerd.certsD"),
			Snapshotter: merged["containerd.snapshotter"].text,
		},
		Staging: r.staging(),
		Disk:    r.disk(),
		Prune:   Prune{Keep: r.number("prune.keep"), Foreign: r.yes("prune.foreign")},
		Credentials: Credentials{
			File: r.maybePath("credentials.file"), TokenServers: r.table("credentials.tokenServers"),
		},
		SignatureKeys: r.paths("signatureKeys"),
		CRI:           CRI{Socket: r.path("cri.socket")},
		Grains:        r.grains(),
		Hooks:         r.hooks(),
		Apply:         r.apply(),
		Kubelet:       r.kubelet(),
		StateDir:      stateDir,
		RuntimeDir:    r.path("runtimeDir"),
		ApplyTimeout:  r.duration("applyTimeout"),
		Settle:        r.duration("settle"),
		NodeName:      merged["nodeName"].text,
		Metrics:       Metrics{Listen: merged["metrics.listen"].text},
		Log:           Log{Level: r.level("log.level"), Format: merged["log.format"].text},
	}
	r.apart("podManifests", "templates", "stateDir", "runtimeDir")
	r.below("staging.layers", "connectionsPerHost")
	return s, r.problems.err()
}

// reader converts inputs, and collects what does not convert.
type reader struct {
	merged   fragment
	root     string
	problems problems
}

func (r *reader) path(key string) string { return filepath.Join("/", r.root, r.merged[key].text) }

// maybePath is empty where no path is set.
func (r *reader) maybePath(key string) string {
	if r.merged[key].text == "" {
		return ""
	}
	return r.path(key)
}

// split reads several directories in one text, as containerd does.
func (r *reader) split(key string) []string {
	var paths []string
	for _, text := range filepath.SplitList(r.merged[key].text) {
		paths = append(paths, filepath.Join("/", r.root, text))
	}
	return paths
}

func (r *reader) paths(key string) []string {
	var paths []string
	for _, item := range r.merged[key].list {
		paths = append(paths, filepath.Join("/", r.root, item.text))
	}
	return paths
}

func (r *reader) texts(key string) []string { return r.merged[key].texts() }

func (r *reader) table(key string) map[string]string {
	texts := map[string]string{}
	for name, in := range r.merged[key].named {
		texts[name] = in.text
	}
	return texts
}

func (r *reader) duration(key string) time.Duration {
	in := r.merged[key]
	d, err := time.ParseDuration(in.text)
	r.check(in, key, err)
	return d
}

func (r *reader) number(key string) int {
	in := r.merged[key]
	n, err := strconv.Atoi(in.text)
	r.check(in, key, err)
	return n
}

func (r *reader) size(key string) int64 {
	in := r.merged[key]
	n, err := parseSize(in.text)
	r.check(in, key, err)
	return n
}

func (r *reader) yes(key string) bool { return r.merged[key].text == "true" }

func (r *reader) level(key string) slog.Level {
	in := r.merged[key]
	var level slog.Level
	r.check(in, key, level.UnmarshalText([]byte(in.text)))
	return level
}

func (r *reader) images(key string) []agent.Reference {
	var refs []agent.Reference
	for _, item := range r.merged[key].list {
		ref, err := agent.ParseReference(item.text)
		r.check(item, key, err)
		refs = append(refs, ref)
	}
	return refs
}

func (r *reader) rewrites(key string) []Rewrite {
	var rewrites []Rewrite
	for _, item := range r.merged[key].list {
		rewrites = append(rewrites, Rewrite{From: item.named["from"].text, To: item.named["to"].text})
	}
	return rewrites
}

func (r *reader) check(in input, key string, err error) {
	if err != nil {
		r.problems.add(in.from, fmt.Errorf("%s: %q: %w", key, in.text, err))
	}
}

// apart refuses another directory at or below kubelet's, which runs every file
// there as a pod, and kubelet's below another.
func (r *reader) apart(key string, others ...string) {
	kubelet := filepath.Clean(r.merged[key].text) + "/"
	for _, other := range others {
		in := r.merged[other]
		dir := filepath.Clean(in.text) + "/"
		if strings.HasPrefix(dir, kubelet) || strings.HasPrefix(kubelet, dir) {
			r.problems.add(in.from, fmt.Errorf("%s: %q: want a directory apart from %s %q (%s)",
				other, in.text, key, r.merged[key].text, r.merged[key].from))
		}
	}
}

// below refuses a number that is not less than another.
func (r *reader) below(key, other string) {
	if n, bound := r.number(key), r.number(other); n >= bound {
		r.problems.add(r.merged[key].from, fmt.Errorf("%s: %d: want less than %s %d (%s)",
			key, n, other, bound, r.merged[other].from))
	}
}
