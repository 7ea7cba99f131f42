// SPDX-License-Identifier: Apache-2.0

package readiness

// What the tests look at beside the exported names.
var (
	HostAddresses = hostAddresses
	Sources       = sources
)
