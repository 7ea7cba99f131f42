// SPDX-License-Identifier: Apache-2.0

// Package distspec parses answers of registries by the distribution specification and as registries really send them:
// tag lists page by page, the Link to the next page, Retry-After. It is pure: it sends nothing, and limits what it
// reads.
package distspec
