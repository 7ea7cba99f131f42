// SPDX-License-Identifier: Apache-2.0

package reboot

import (
	"context"
	"fmt"

	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
	"github.com/kubic-project/image-update-agent/internal/face/bus"
)

// snapshot asks tukit whether the next boot uses the running snapshot. Later writes to /etc are copied file by file,
// and lost if the new snapshot has its own version.
func (n Node) snapshot(ctx context.Context) []status.Hold {
	const service = "org.opensuse.tukit"
	var list []map[string]string
	ok, err := n.ask(ctx, slowPatience, bus.Question{
		Service: service, Path: "/org/opensuse/tukit/Snapshot", Method: service + ".Snapshot.List",
		Args: []any{"number,default,active"}, Start: true,
	}, &list)
	switch {
	case err != nil:
		return hold(status.HoldSnapshot, err.Error())
	case !ok || len(list) == 0:
		return nil
	}
	next, running := marked(list, "default"), marked(list, "active")
	switch {
	case next == "" || running == "":
		return hold(status.HoldSnapshot, service+": names no default or no active snapshot")
	case next == running:
		return nil
	}
	return hold(status.HoldSnapshot,
		fmt.Sprintf("snapshot %s waits for a reboot, %s is running", outside.Text(next), outside.Text(running)))
}

// marked returns the number of the snapshot that has a mark.
func marked(list []map[string]string, mark string) string {
	for _, s := range list {
		if s[mark] == "yes" {
			return s["number"]
		}
	}
	return ""
}
