// SPDX-License-Identifier: Apache-2.0

package registryhost

// Maximum sizes of input, in bytes.
const (
	maxAnswer = 8 << 10  // of the local registry
	maxHosts  = 16 << 10 // a hosts.toml to which the local registry is added
)
