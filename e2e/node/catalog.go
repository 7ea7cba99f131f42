// SPDX-License-Identifier: Apache-2.0

package node

// CatalogProgram builds image-catalog and returns its path.
func (n *Node) CatalogProgram() string {
	n.tb.Helper()
	return n.build(n.checkout(), "image-catalog", "image-catalog")
}
