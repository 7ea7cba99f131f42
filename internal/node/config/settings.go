// SPDX-License-Identifier: Apache-2.0

package config

import (
	"log/slog"
	"time"

	"github.com/kubic-project/image-update-agent/agent/fleet"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/base/window"
	"github.com/kubic-project/image-update-agent/internal/catalog"
)

// Settings are the whole valid configuration. Every path is absolute and includes the root. packaging/config.yaml
// explains the keys to users; the comments here are for the code that uses them.
type Settings struct {
	// Interval is the time between two polls; 0: polling is off.
	Interval time.Duration `yaml:"interval" is:"duration 0" default:"12h"`
	// TagListInterval is the minimum time between two lists of a repository's tags.
	TagListInterval time.Duration `yaml:"tagListInterval" is:"duration" default:"24h"`
	// ConfirmAfter is how long after its first reading a changed digest is read again, before it counts; 0: it counts
	// at once.
	ConfirmAfter time.Duration `yaml:"confirmAfter" is:"duration 0" default:"30s"`
	// StagingSpread is the time over which the nodes of a fleet start to stage the releases found by a poll; 0: at
	// once.
	StagingSpread time.Duration `yaml:"stagingSpread" is:"duration 0" default:"0"`
	// RequestsPerHour limits the requests to all registries together; 0: no limit.
	RequestsPerHour    int `yaml:"requestsPerHour" is:"number 0 36000000" default:"3600"`
	ConnectionsPerHost int `yaml:"connectionsPerHost" is:"number 4 64" default:"4"`
	// PullPolicy is the pull policy in rendered templates; ManagedPullPolicy is for other pod manifests; empty: they
	// keep their own.
	PullPolicy        string `yaml:"pullPolicy" is:"oneof Always IfNotPresent" default:"Always"`
	ManagedPullPolicy string `yaml:"managedPullPolicy" is:"oneof? Always IfNotPresent" default:""`
	// Platform is the Kubernetes distribution, which determines defaults; empty: the detected one.
	Platform  string `yaml:"platform" is:"platform?" default:""`
	Templates string `yaml:"templates" is:"path" platform:"Templates"`
	// PodManifests is kubelet's directory (staticPodPath); not set: from kubelet's configuration.
	PodManifests string `yaml:"podManifests" is:"path" platform:"PodManifests"`
	// Rendered is the directory of rendered files that wait for approval, below StateDir.
	Rendered string
	// Manage are files in PodManifests that the agent may change without a template.
	Manage []string `yaml:"manage" is:"filename"`
	// Images are followed although no pod manifest uses them.
	Images []release.Reference `yaml:"images" is:"image"`
	// Values are tags for placeholders, by repository as the template writes it. They override TagFiles.
	Values map[string]string `yaml:"values" names:"repository" is:"tag"`
	// TagFiles are the directories of the image packages' tag files.
	TagFiles []string  `yaml:"tagFiles" is:"path" default:"/usr/share/suse-docker-images/native /usr/share/suse-containermetadata-images"` //nolint:lll // one line, as tags are
	Rewrites []Rewrite `yaml:"rewrites" key:"from"`
	// Repositories are the policies as written; Rules applies them.
	Repositories []Repository `yaml:"repositories" key:"match,layered"`
	Containerd   Containerd   `yaml:"containerd"`
	Staging      Staging      `yaml:"staging"`
	Disk         Disk         `yaml:"disk"`
	Prune        Prune        `yaml:"prune"`
	Credentials  Credentials  `yaml:"credentials"`
	// SignatureKeys are the directories of the public keys for verifying signatures.
	SignatureKeys []string `yaml:"signatureKeys" is:"path" default:"/usr/share/pki/containers"`
	Catalog       Catalog  `yaml:"catalog"`
	CRI           CRI      `yaml:"cri"`
	Grains        Grains   `yaml:"grains"`
	Hooks         Hooks    `yaml:"hooks"`
	Apply         Apply    `yaml:"apply"`
	Kubelet       Kubelet  `yaml:"kubelet"`
	Metrics       Metrics  `yaml:"metrics"`
	// LocalRegistry is the node's local registry.
	LocalRegistry LocalRegistry `yaml:"localRegistry"`
	// StateDir has the record; it survives a reboot and a rollback of the OS. RuntimeDir has sockets and status.
	StateDir   string `yaml:"stateDir" is:"path" default:"/var/lib/image-update-agent"`
	RuntimeDir string `yaml:"runtimeDir" is:"path" default:"/run/image-update-agent"`
	// ApplyTimeout is how long a pod may take to run the applied releases, and Settle how long it must then run without
	// a restart to pass its health check; 0: not at all.
	ApplyTimeout time.Duration `yaml:"applyTimeout" is:"duration" default:"5m"`
	Settle       time.Duration `yaml:"settle" is:"duration 0" default:"30s"`
	// NodeName is the node's name in Kubernetes; empty if unknown.
	NodeName string `yaml:"nodeName" is:"node?" default:""`
	Log      Log    `yaml:"log"`
}

// Rewrite replaces the prefix From of a repository, up to a slash, by To.
type Rewrite struct {
	From string `yaml:"from" is:"prefix"`
	To   string `yaml:"to" is:"prefix"`
}

// Containerd configures the image store.
type Containerd struct {
	Socket    string `yaml:"socket" is:"path" platform:"ContainerdSocket"`
	Namespace string `yaml:"namespace" is:"namespace" default:"k8s.io"`
	// CertsD are directories of hosts.toml files, as in containerd's config_path; not set: from containerd's
	// configuration.
	CertsD []string `yaml:"certsD" is:"searchpath" platform:"CertsD"`
	// Snapshotter is the snapshotter to unpack for; empty: CRI's.
	Snapshotter string `yaml:"snapshotter" is:"namespace?" default:""`
}

// Staging limits the pulls before an apply.
type Staging struct {
	Images int `yaml:"images" is:"number 1 8" default:"2"`  // concurrent pulls
	Layers int `yaml:"layers" is:"number 1 16" default:"3"` // concurrent layers, of all images together
	// Of all pulls together (0: unlimited), and the minimum speed of a layer over a minute (0: none), in bytes per
	// second.
	Bandwidth  int64         `yaml:"bandwidth" is:"size 16KiB 1TiB unlimited" default:"0"`
	LeastSpeed int64         `yaml:"leastSpeed" is:"size 64 1GiB no minimum speed" default:"1KiB"`
	Timeout    time.Duration `yaml:"timeout" is:"duration" default:"1h"` // of one release
}

// Disk is the space that staging keeps free on the filesystem of the images: the larger of Reserve, in bytes, and
// ReservePercent, of the filesystem's size.
type Disk struct {
	Reserve        int64 `yaml:"reserve" is:"size 1MiB 1024TiB only the percentage counts" default:"1GiB"`
	ReservePercent int   `yaml:"reservePercent" is:"number 0 90" default:"10"`
	// HighMark is the usage in percent at which kubelet begins to remove images: as configured, else kubelet's own (0),
	// else its default. It is never 0.
	HighMark int `yaml:"highMark" is:"number 0 100" default:"85"`
}

// Prune configures the removal of old releases.
type Prune struct {
	// Keep is how many good releases of an image are kept in addition to the running one.
	Keep int `yaml:"keep" is:"number 0 10" default:"1"`
	// Unstaged: also remove releases of tracked repositories that the agent did not stage.
	Unstaged bool `yaml:"unstaged" is:"bool true false" default:"false"`
}

// Credentials configures the sources of registry logins, and who may receive them.
type Credentials struct {
	// File is searched before the usual ones; empty: none.
	File string `yaml:"file" is:"path?" default:""`
	// TokenServers may receive the logins of a registry, by its host.
	TokenServers map[string]string `yaml:"tokenServers" names:"host" is:"host"`
}

// Catalog configures the release catalog that the node follows.
type Catalog struct {
	Repository string `yaml:"repository" is:"repository?" default:""` // empty: none
	Channel    string `yaml:"channel" is:"namespace" default:"prod"`
	// Unlisted is the treatment of images that the catalog does not list.
	Unlisted   string `yaml:"unlisted" is:"oneof ask refuse" default:"ask"`
	Expired    string `yaml:"expired" is:"oneof hold warn" default:"hold"`
	AllowLower bool   `yaml:"allowLower" is:"bool true false" default:"false"`
	Signatures string `yaml:"signatures" is:"oneof require warn off" default:"require"`
	// Keys are the directories of the catalog's public keys; none: those of SignatureKeys.
	Keys []string `yaml:"keys" is:"path"`
	// RequiredKeys is how many of the keys must have signed the catalog.
	RequiredKeys int `yaml:"requiredKeys" is:"number 1 64" default:"1"`
}

// CRI is the container runtime as kubelet uses it.
type CRI struct {
	Socket string `yaml:"socket" is:"path" platform:"ContainerdSocket"`
}

// Grains configures the grains for Salt.
type Grains struct {
	Enabled bool   `yaml:"enabled" is:"bool true false" default:"true"`
	Path    string `yaml:"path" is:"path" default:"/etc/salt/grains"`
	// Velum: an unmodified Velum should drain and reboot the node for updates. Nobody writes its value by accident.
	Velum bool `yaml:"velum" is:"onoff off drain-and-reboot" default:"off"`
}

// Hooks run outside the daemon after a change.
type Hooks struct {
	// SaltRefresh: Salt's minion reads its grains again.
	SaltRefresh bool `yaml:"saltRefresh" is:"bool true false" default:"false"`
	// SaltEvent: Salt's master receives an event.
	SaltEvent bool `yaml:"saltEvent" is:"bool true false" default:"false"`
	// Exec is a program that receives the change; empty: none.
	Exec string `yaml:"exec" is:"path?" default:""`
	// Webhooks are servers that receive the change.
	Webhooks []Webhook `yaml:"webhooks" key:"name" most:"8"`
	// Timeout limits each of them; webhooks run concurrently. systemd ends the hook's service after four times the
	// maximum and some minutes.
	Timeout time.Duration `yaml:"timeout" is:"duration 10m" default:"1m"`
}

// Configured reports whether there is any hook.
func (h Hooks) Configured() bool { return h.HasPrograms() || len(h.Webhooks) > 0 }

// HasPrograms reports whether there is a program to run: salt-call or the admin's.
func (h Hooks) HasPrograms() bool { return h.SaltRefresh || h.SaltEvent || h.Exec != "" }

// Webhook is a server that receives the change over HTTPS.
type Webhook struct {
	Name string `yaml:"name" is:"webhookname"`
	// URL or URLFile, a file with the URL as its only line, for a secret URL.
	URL     string `yaml:"url,omitempty" is:"webhookurl"`
	URLFile string `yaml:"urlFile,omitempty" is:"path"`
	Format  string `yaml:"format" is:"oneof event text" default:"event"`
	// Events are the events to send; not set: all.
	Events    []string `yaml:"events,omitempty" is:"oneof offered staged applied failed state"`
	TokenFile string   `yaml:"tokenFile,omitempty" is:"path"` // with a bearer token
	CA        string   `yaml:"ca,omitempty" is:"path"`        // empty: the system's authorities
}

// ApplyAuto is the mode that applies staged releases while a window is open.
const ApplyAuto = "auto"

// Apply configures when, and in which order, updates are applied.
type Apply struct {
	Mode string `yaml:"mode" is:"oneof manual auto" default:"manual"`
	// Windows are the times at which ApplyAuto may begin.
	Windows window.Schedule `yaml:"windows" most:"64"`
	// MinSeverity is the least severity that ApplyAuto applies; empty: any, also none.
	MinSeverity catalog.Severity `yaml:"minSeverity" is:"severity?" default:""`
	// Freeze is when applies are allowed again; zero: now.
	Freeze time.Time `yaml:"freeze" is:"time?" default:""`
	// Order are names of pod manifests, or patterns of path.Match: pod manifests that match the first one come first,
	// and so on; then the others.
	Order []string `yaml:"order" is:"filepattern"`
	Lock  Lock     `yaml:"lock"`
	// Quorum says whether the other members of the control plane must be healthy before one on this node is stopped.
	Quorum string `yaml:"quorum" is:"oneof require off" default:"require"`
}

// LockIDZincati is the Lock.ID of nodes that the server knows by Zincati's id.
const LockIDZincati = "zincati"

// QuorumRequire is the Quorum setting that checks the control plane.
const QuorumRequire = "require"

// Lock configures the fleet lock: in a Lease of the cluster, or with the FleetLock protocol.
type Lock struct {
	Lease string `yaml:"lease" is:"lease?" default:""` // NAMESPACE/NAME; empty: none
	// Kubeconfig leads to the Lease.
	Kubeconfig string `yaml:"kubeconfig" is:"path" platform:"Kubeconfigs"`

	URL   string `yaml:"url" is:"lockserver?" default:""` // of the server; empty: none
	Group string `yaml:"group" is:"lockgroup" default:"default"`
	// ID is how the node's id is derived: for this program, or as Zincati does.
	ID   string `yaml:"id" is:"oneof own zincati" default:"own"`
	Pods string `yaml:"pods" is:"oneof control-plane all" default:"control-plane"`
	CA   string `yaml:"ca" is:"path?" default:""` // empty: the system's authorities
	// Cert and Key are the client's; both or none.
	Cert string `yaml:"cert" is:"path?" default:""`
	Key  string `yaml:"key" is:"path?" default:""`
}

// IsSet reports whether there is a lock.
func (l Lock) IsSet() bool { return l.Target() != fleet.Target{} }

// Target is what the nodes lock.
func (l Lock) Target() fleet.Target {
	switch {
	case l.Lease != "":
		return fleet.Target{Lease: l.Lease}
	case l.URL != "":
		return fleet.Target{Server: l.URL, Group: l.Group}
	}
	return fleet.Target{}
}

// Kubelet configures requests to kubelet.
type Kubelet struct {
	// Pods is the URL of its list of pods: as configured, else of its read-only port; empty: no list.
	Pods string `yaml:"pods" is:"podlist?" default:""`
}

// Metrics configures the metrics in addition to those on the status socket.
type Metrics struct {
	// Listen is a loopback address with its port; empty: none.
	Listen string `yaml:"listen" is:"listen?" default:""`
}

// LocalRegistry configures the answers of the node's local registry.
type LocalRegistry struct {
	// Private: also serve images for which the registry required a login from the agent.
	Private bool `yaml:"private" is:"bool true false" default:"false"`
}

// Log configures the daemon's log on standard error.
type Log struct {
	Level  slog.Level `yaml:"level" is:"level debug info warn error" default:"info"`
	Format string     `yaml:"format" is:"oneof text json" default:"text"`
}
