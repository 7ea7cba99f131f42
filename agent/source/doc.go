// SPDX-License-Identifier: Apache-2.0

// Package source asks a source for releases with as few requests as possible. The Asker asks the questions of one
// Round, which requests no answer twice, and returns an Offer for each. A digest that is new to the node counts only
// after a second reading.
//
// The long tag is requested with GET after the HEAD for the followed tag; if the content has the digest, description
// and pull use it. Only the list is one request more than CRI's. The long tag is not taken from the image's label,
// which an image built from another one inherits, and the followed tag is not fetched by one GET, because containerd
// takes host and media type from the answer to HEAD.
package source
