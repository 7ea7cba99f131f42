// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// RegistryProgram is an implementation of a registry.
type RegistryProgram string

const (
	// DockerRegistry is Debian's docker-registry 2.8: it lists all tags at once and knows OCI media types.
	DockerRegistry RegistryProgram = ""
	// Distribution3 is the newest distribution 3.x, built by tools/setup: it pages tag lists and can delete tags.
	Distribution3 RegistryProgram = "distribution"
	// Distribution26 is distribution 2.6.2, built by tools/setup, which SUSE documented for air-gapped sites: it knows
	// Docker's media types only, and converts manifests to schema 1 for a client whose Accept header lacks their type.
	Distribution26 RegistryProgram = "registry26"
	// InProcess is the registry of go-containerregistry in this process: it needs no installation and no build.
	InProcess RegistryProgram = "in-process"
)

// registryProgram returns the path of an implementation.
func (n *Node) registryProgram(program RegistryProgram) string {
	n.tb.Helper()
	switch program {
	case DockerRegistry:
		return n.installed("docker-registry")
	case Distribution3:
		return filepath.Join(n.Part("distribution"), "registry")
	case Distribution26:
		return filepath.Join(n.Part("registry26"), "registry26")
	default:
		n.tb.Fatalf("node: registry %q: not an implementation of this package", program)
		return ""
	}
}

// registryConfig is valid for distribution 2.6 to 3. A unix socket avoids the search for a free port; relative URLs
// keep uploads at the address that the client used.
const registryConfig = `version: 0.1
log: {accesslog: {disabled: true}, level: error}
storage:
  filesystem: {rootdirectory: %[1]s/storage}
  cache: {blobdescriptor: inmemory}
  delete: {enabled: true}
http: {net: unix, addr: %[1]s/socket, relativeurls: true}
`

// registryEnv keeps distribution 3 from connecting to a trace collector on this machine. A registry lives for seconds,
// and collecting its garbage cost a fifth of its CPU time.
func registryEnv() []string {
	return []string{searchPath(), "OTEL_TRACES_EXPORTER=none", "GOGC=off", "GOMEMLIMIT=128MiB"}
}

func (o RegistryOptions) config(dir string) string {
	config := fmt.Sprintf(registryConfig, dir)
	if o.MaxTags > 0 {
		config += fmt.Sprintf("tags: {maxtags: %d}\n", o.MaxTags)
	}
	return config
}

// Untag deletes a tag and keeps the manifest. Only Distribution3 can do so.
func (r *Registry) Untag(repository, tag string) {
	r.node.tb.Helper()
	repo, err := r.repository(repository)
	if err == nil {
		err = remote.Delete(repo.Tag(tag), r.past()...)
	}
	if err != nil {
		r.node.tb.Fatalf("node: untag %s:%s: %v", repository, tag, err)
	}
}
