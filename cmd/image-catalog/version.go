// SPDX-License-Identifier: Apache-2.0

package main

// version is set by the build (-ldflags "-X main.version=...").
var version = "devel"
