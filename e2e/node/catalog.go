// SPDX-License-Identifier: Apache-2.0

package node

// CatalogProgram is the path of image-catalog, which it builds.
func (n *Node) CatalogProgram() string {
	n.tb.Helper()
	return n.build(n.checkout(), "image-catalog", "image-catalog")
}
