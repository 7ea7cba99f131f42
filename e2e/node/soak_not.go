// SPDX-License-Identifier: Apache-2.0

//go:build !soak

package node

// Soak tells that each test runs on every version, and at every point. `make test` has one of each.
const Soak = false
