// SPDX-License-Identifier: Apache-2.0

// Package distspec reads what registries answer by the distribution specification, and as they
// really send it: tag lists page by page, the Link to the next page, Retry-After. It is pure: it
// sends nothing, and what it reads is bounded.
package distspec
