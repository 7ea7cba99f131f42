// SPDX-License-Identifier: Apache-2.0

package quorum

// The parsers.
var (
	FlagsOf         = flagsOf
	ParseKubeconfig = parseKubeconfig
)
