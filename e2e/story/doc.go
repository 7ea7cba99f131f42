// SPDX-License-Identifier: Apache-2.0

// Package story has what the stories of several directories share: how a story sets a node up, runs the agent on it,
// and reads what it left. A helper that the stories of one directory use stays there. A test runs in its own directory,
// which is beside this one: paths of the project begin with "../../".
package story
