// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"path/filepath"
)

// Shell runs a line of sh in the node's mount namespace, and returns its output. A nonzero exit status fails the test.
func (n *Node) Shell(line string) string {
	n.tb.Helper()
	n.lock.Lock()
	out := filepath.Join(n.Dir, "log", fmt.Sprintf("shell%d.out", len(n.processes)))
	n.lock.Unlock()
	p := n.runWith(&Process{Name: "sh", Stdout: out, Stderr: out}, []string{searchPath()},
		[]string{n.installed("sh"), "-euc", line})
	if exit := p.Wait(Patience); exit.Code != 0 {
		n.tb.Fatalf("node: sh: %s: exit %d: %s", line, exit.Code, n.text(out))
	}
	return n.text(out)
}
