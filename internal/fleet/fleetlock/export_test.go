// SPDX-License-Identifier: Apache-2.0

package fleetlock

// Parse reads the body of an answer.
var Parse = parse
