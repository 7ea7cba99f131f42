// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"time"

	"github.com/kubic-project/image-update-agent/agent/node"
)

// Note records a list of containers, as a look does during a cycle.
func (w *Watched) Note(containers []node.Container, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.note(containers, now)
}
