// SPDX-License-Identifier: Apache-2.0

package story

// Files and directories below a node's root.
const (
	AgentSocket        = "run/image-update-agent/agent.sock"
	CertsD             = "etc/containerd/certs.d/" // of hosts.toml files
	ConfigFile         = "etc/image-update-agent/config.yaml"
	GrainFile          = "etc/salt/grains"
	ManifestDir        = "etc/kubernetes/manifests/"
	LocalRegistryTable = "var/lib/image-update-agent/local-registry.json" // of the local registry
	Passed             = "var/log/points"                                 // the labels of the kill points that were passed
	RecordFile         = "var/lib/image-update-agent/record.json"
	TemplateDir        = "usr/share/caasp-container-manifests/manifests/"
	VelumYAML          = ManifestDir + "velum.yaml"
	Waiting            = WaitingDir + "velum.yaml"
	WaitingDir         = "var/lib/image-update-agent/rendered/" // rendered pod manifests that wait for approval
)
