// SPDX-License-Identifier: Apache-2.0

// Package stage stages releases: it verifies their signatures, pulls and pins them, and checks that kubelet will find
// them. Space reserves disk space for concurrent pulls. The package returns results and makes no decisions.
//
// Manifests do not say how large layers unpack: 2 to 2.8 times was measured. So unpacked bytes count 3 times with gzip,
// 4 with zstd or an unknown type, once uncompressed; a nearly full node may hold what would have fitted.
package stage
