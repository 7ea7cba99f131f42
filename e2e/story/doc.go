// SPDX-License-Identifier: Apache-2.0

// Package story has helpers that the end-to-end tests of several directories share: to set up a node, run the agent on
// it, and read the results. A helper that only one directory uses is in that directory. A test runs in its own
// directory, next to this one: paths of the project begin with "../../".
package story
