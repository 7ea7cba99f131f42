// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/kubic-project/image-update-agent/agent"
)

// Settings are the whole configuration, validated. Every path is absolute and has the root before it. What a key is
// for is explained to its users in packaging/config.yaml; here stands what its reader in code has to know.
type Settings struct {
	// Interval is the time between two polls; 0: polling is off.
	Interval time.Duration `yaml:"interval" is:"duration 0" default:"12h"`
	// TagListInterval is the least time between two lists of a repository's tags.
	TagListInterval time.Duration `yaml:"tagListInterval" is:"duration" default:"24h"`
	// ConfirmAfter is how long after its first reading a changed digest is read again, before it counts; 0: it counts.
	ConfirmAfter time.Duration `yaml:"confirmAfter" is:"duration 0" default:"30s"`
	// StagingSpread is the time over which the nodes of a fleet begin to stage what a poll has found; 0: at once.
	StagingSpread time.Duration `yaml:"stagingSpread" is:"duration 0" default:"0"`
	// RequestsPerHour bounds the requests to all registries together; 0: it does not.
	RequestsPerHour    int `yaml:"requestsPerHour" is:"number 0 36000000" default:"3600"`
	ConnectionsPerHost int `yaml:"connectionsPerHost" is:"number 4 64" default:"4"`
	// PullPolicy is what rendering a template writes; ManagedPullPolicy is for the others; empty: they keep their own.
	PullPolicy        string `yaml:"pullPolicy" is:"oneof Always IfNotPresent" default:"Always"`
	ManagedPullPolicy string `yaml:"managedPullPolicy" is:"oneof? Always IfNotPresent" default:""`
	Templates         string `yaml:"templates" is:"path" default:"/usr/share/caasp-container-manifests/manifests"`
	// PodManifests is kubelet's directory (staticPodPath); not written: as kubelet says.
	PodManifests string `yaml:"podManifests" is:"path" default:"/etc/kubernetes/manifests"`
	// Rendered is where rendered files wait for approval: below StateDir.
	Rendered string
	// Manage are files in PodManifests that may be changed although they have no template.
	Manage []string `yaml:"manage" is:"filename"`
	// Images are followed although no pod manifest uses them.
	Images []agent.Reference `yaml:"images" is:"image"`
	// Values are tags for placeholders, by repository as the template writes it. They win over TagFiles.
	Values map[string]string `yaml:"values" names:"repository" is:"tag"`
	// TagFiles are the directories of the image packages' tag files.
	TagFiles []string  `yaml:"tagFiles" is:"path" default:"/usr/share/suse-docker-images/native /usr/share/suse-containermetadata-images"` //nolint:lll // one line, as tags are
	Rewrites []Rewrite `yaml:"rewrites" key:"from"`
	// Repositories are the policies as written; Policy applies them.
	Repositories []Repository `yaml:"repositories" key:"match,layered"`
	Containerd   Containerd   `yaml:"containerd"`
	Staging      Staging      `yaml:"staging"`
	Disk         Disk         `yaml:"disk"`
	Prune        Prune        `yaml:"prune"`
	Credentials  Credentials  `yaml:"credentials"`
	// SignatureKeys are the directories of the public keys that signatures are verified with.
	SignatureKeys []string `yaml:"signatureKeys" is:"path" default:"/usr/share/pki/containers"`
	CRI           CRI      `yaml:"cri"`
	Grains        Grains   `yaml:"grains"`
	Hooks         Hooks    `yaml:"hooks"`
	Apply         Apply    `yaml:"apply"`
	Kubelet       Kubelet  `yaml:"kubelet"`
	Metrics       Metrics  `yaml:"metrics"`
	// StateDir keeps the record; it survives a reboot and a rollback of the OS. RuntimeDir has sockets and status.
	StateDir   string `yaml:"stateDir" is:"path" default:"/var/lib/image-update-agent"`
	RuntimeDir string `yaml:"runtimeDir" is:"path" default:"/run/image-update-agent"`
	// ApplyTimeout is how long a pod may take to run what was applied, and Settle how long it must then run without a
	// restart, to be proved; 0: not at all.
	ApplyTimeout time.Duration `yaml:"applyTimeout" is:"duration" default:"5m"`
	Settle       time.Duration `yaml:"settle" is:"duration 0" default:"30s"`
	// NodeName is the node's name in Kubernetes; empty: not known.
	NodeName string `yaml:"nodeName" is:"node?" default:""`
	Log      Log    `yaml:"log"`
}

// config looks at what settings ask of one another, and gives what was read.
func (w *walker) config(files []string) (*Config, error) {
	s := &w.settings
	s.Rendered = filepath.Join(s.StateDir, "rendered")
	if len(w.problems) == 0 {
		w.fitTogether()
	}
	if len(w.problems) > 0 {
		return nil, w.problems
	}
	return &Config{Settings: *s, Files: files, shown: w.shown}, nil
}

func (w *walker) fitTogether() {
	if g := w.settings.Grains; g.Velum && !g.Enabled {
		w.unfit("grains.velum", "%s: no grain is written, as grains.enabled is false (%s)",
			w.written("grains.enabled").LineComment)
	}
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
	place := strings.TrimSuffix(in.LineComment, fmt.Sprintf(":%d", in.Line))
	w.add(place, in.Line, fmt.Errorf(key+": "+format, append([]any{in.Value}, args...)...))
}
