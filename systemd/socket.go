// SPDX-License-Identifier: Apache-2.0

package systemd

import (
	"log/slog"
	"net"

	"github.com/coreos/go-systemd/v22/activation"
)

// Socket returns the manager's listening socket at path (systemd.socket(5)), nil if there is none. Close keeps the
// manager's descriptor and the file: the next daemon serves clients that connect in between.
//
// Socket closes and logs other sockets, as after a change of path in the configuration. Call it once: it removes the
// descriptors and their variables (sd_listen_fds(3)).
func Socket(path string, log *slog.Logger) net.Listener {
	var found net.Listener
	for _, file := range activation.Files(true) {
		listener, err := net.FileListener(file)
		_ = file.Close() // the listener has its own descriptor
		switch {
		case err != nil:
			log.Warn("socket of the service manager not used", "name", file.Name(), "err", err)
		case found == nil && listener.Addr().Network() == "unix" && listener.Addr().String() == path:
			found = listener
		default:
			log.Warn("socket of the service manager not used", "name", file.Name(),
				"at", listener.Addr().String(), "wanted", path)
			_ = listener.Close()
		}
	}
	return found
}
