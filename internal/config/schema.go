// SPDX-License-Identifier: Apache-2.0

package config

// shape is what stands behind a key.
type shape int

const (
	text    shape = iota // one scalar
	list                 // scalars; a later fragment replaces the list
	table                // names and scalars; merged by name
	records              // mappings with the same keys; merged by the first key, or unnamed
	section              // more keys
)

// key is one key of the configuration: the only place that knows what is
// allowed, and the default.
type key struct {
	name     string
	shape    shape
	check    check // of the scalar, the list's items, the table's values; nil: fits looks
	names    check // of the table's names
	keys     []key // of the section or of each record; a record's first key is its name, or none is
	fits     fits  // of each record, what its keys ask of one another; nil: nothing
	boolean  bool  // the scalar is true or false
	optional bool  // of a record's key
	unnamed  bool  // records have no names: a later fragment replaces the list
	layered  bool  // records of one name in several files all count, each for what it writes
	def      []string
}

// schema gives all keys. Defaults are those of the design's "Default paths" and
// of packaging/config.yaml, which a test compares.
func schema() []key {
	return []key{
		{name: "interval", check: duration(zeroIsOff), def: []string{"12h"}},
		{name: "tagListInterval", check: duration(zeroIsRefused), def: []string{"24h"}},
		{name: "confirmAfter", check: duration(zeroIsOff), def: []string{"30s"}},
		{name: "stagingSpread", check: duration(zeroIsOff), def: []string{"0"}},
		{name: "requestsPerHour", check: number(0, maxRequests), def: []string{"3600"}},
		{name: "connectionsPerHost", check: number(4, 64), def: []string{"4"}},
		{name: "pullPolicy", check: oneOf("Always", "IfNotPresent"), def: []string{"Always"}},
		{name: "managedPullPolicy", check: oneOf("", "Always", "IfNotPresent"), def: []string{""}},
		{name: "templates", check: path, def: []string{"/usr/share/caasp-container-manifests/manifests"}},
		{name: "podManifests", check: path, def: []string{"/etc/kubernetes/manifests"}},
		{name: "manage", shape: list, check: fileName},
		{name: "images", shape: list, check: image},
		{name: "values", shape: table, names: repository, check: tag},
		{name: "tagFiles", shape: list, check: path, def: []string{
			"/usr/share/suse-docker-images/native", "/usr/share/suse-containermetadata-images",
		}},
		{name: "rewrites", shape: records, keys: []key{
			{name: "from", check: prefix},
			{name: "to", check: prefix},
		}},
		{name: "repositories", shape: records, layered: true, keys: repositoryKeys(), fits: repositoryFits},
		{name: "containerd", shape: section, keys: containerdKeys()},
		{name: "staging", shape: section, keys: stagingKeys()},
		{name: "disk", shape: section, keys: diskKeys()},
		{name: "prune", shape: section, keys: pruneKeys()},
		{name: "credentials", shape: section, keys: []key{
			{name: "file", check: maybePath, def: []string{""}},
			{name: "tokenServers", shape: table, names: host, check: host},
		}},
		{name: "signatureKeys", shape: list, check: path, def: []string{"/usr/share/pki/containers"}},
		{name: "cri", shape: section, keys: []key{
			{name: "socket", check: path, def: []string{"/run/containerd/containerd.sock"}},
		}},
		{name: "grains", shape: section, keys: grainKeys()},
		{name: "hooks", shape: section, keys: hookKeys()},
		{name: "apply", shape: section, keys: applyKeys()},
		{name: "kubelet", shape: section, keys: kubeletKeys()},
		{name: "metrics", shape: section, keys: metricsKeys()},
		{name: "stateDir", check: path, def: []string{"/var/lib/image-update-agent"}},
		{name: "runtimeDir", check: path, def: []string{"/run/image-update-agent"}},
		{name: "applyTimeout", check: duration(zeroIsRefused), def: []string{"5m"}},
		{name: "settle", check: duration(zeroIsOff), def: []string{"30s"}},
		{name: "nodeName", check: nodeName, def: []string{""}},
		{name: "log", shape: section, keys: []key{
			{name: "level", check: oneOf("debug", "info", "warn", "error"), def: []string{"info"}},
			{name: "format", check: oneOf("text", "json"), def: []string{"text"}},
		}},
	}
}

// containerdKeys are those of containerd.
func containerdKeys() []key {
	return []key{
		{name: "socket", check: path, def: []string{"/run/containerd/containerd.sock"}},
		{name: "namespace", check: identifier, def: []string{"k8s.io"}},
		{name: "certsD", check: path, def: []string{"/etc/containerd/certs.d"}},
		{name: "snapshotter", check: maybeIdentifier, def: []string{""}},
	}
}

// stagingKeys are those of staging. Below 16 KiB a second a unit was mistaken: a
// layer of 50 MB would take an hour.
func stagingKeys() []key {
	return []key{
		{name: "images", check: number(1, 8), def: []string{"2"}},
		{name: "layers", check: number(1, 16), def: []string{"3"}},
		{name: "bandwidth", check: size("unlimited", "16KiB", "1TiB"), def: []string{"0"}},
		{name: "leastSpeed", check: size("as slow as it is", "64", "1GiB"), def: []string{"1KiB"}},
		{name: "timeout", check: duration(zeroIsRefused), def: []string{"1h"}},
	}
}

// diskKeys are those of disk.
func diskKeys() []key {
	return []key{
		{name: "reserve", check: size("only the percentage counts", "1MiB", "1024TiB"), def: []string{"1GiB"}},
		{name: "reservePercent", check: number(0, 90), def: []string{"10"}},
		{name: "highMark", check: number(0, 100), def: []string{"0"}},
	}
}

// pruneKeys are those of prune.
func pruneKeys() []key {
	return []key{
		{name: "keep", check: number(0, 10), def: []string{"1"}},
		{name: "foreign", check: boolean, boolean: true, def: []string{"false"}},
	}
}

// grainKeys are those of grains.
func grainKeys() []key {
	return []key{
		{name: "enabled", check: boolean, boolean: true, def: []string{"true"}},
		{name: "path", check: path, def: []string{"/etc/salt/grains"}},
		{name: "velum", check: oneOf(velumOff, velumReboots), def: []string{velumOff}},
	}
}

// hookKeys are those of hooks.
func hookKeys() []key {
	return []key{
		{name: "saltRefresh", check: boolean, boolean: true, def: []string{"false"}},
		{name: "exec", check: maybePath, def: []string{""}},
		{name: "timeout", check: hookTimeout, def: []string{"1m"}},
	}
}

// applyKeys are those of apply.
func applyKeys() []key {
	return []key{
		{name: "mode", check: oneOf(ApplyManual, ApplyAuto), def: []string{ApplyManual}},
		{name: "windows", shape: records, unnamed: true, keys: []key{
			{name: "days", shape: list, check: days, optional: true},
			{name: "start", check: timeOfDay},
			{name: "length", check: windowLength},
			{name: "zone", check: zone, optional: true},
		}},
		{name: "freeze", check: maybeMoment, def: []string{""}},
		{name: "order", shape: list, check: filePattern},
	}
}

// kubeletKeys are those of kubelet.
func kubeletKeys() []key {
	return []key{{name: "pods", check: podList, def: []string{""}}}
}

// metricsKeys are those of metrics.
func metricsKeys() []key {
	return []key{{name: "listen", check: loopback, def: []string{""}}}
}

// repositoryKeys are those of an entry of repositories.
func repositoryKeys() []key {
	return []key{
		{name: "match", check: pattern},
		{name: "follow", check: tag, optional: true},
		{name: "updates", check: updates, optional: true},
		{name: "dialect", check: dialect, optional: true},
		{name: "allow", shape: list, check: tagPattern, optional: true},
		{name: "deny", shape: list, check: denial, optional: true},
		{name: "max", optional: true},
		{name: "older", check: boolean, boolean: true, optional: true},
		{name: "signatures", check: oneOf("require", "warn", "off"), optional: true},
		{name: "hold", check: CheckReason, optional: true},
		{name: "until", check: moment, optional: true},
	}
}

// find gives the key of that name.
func find(keys []key, name string) (key, bool) {
	for _, k := range keys {
		if k.name == name {
			return k, true
		}
	}
	return key{}, false
}

// leaves calls visit for each key that is no section, with its dotted path, in
// the order of the schema.
func leaves(keys []key, prefix string, visit func(path string, k key)) {
	for _, k := range keys {
		if k.shape == section {
			leaves(k.keys, prefix+k.name+".", visit)
			continue
		}
		visit(prefix+k.name, k)
	}
}
