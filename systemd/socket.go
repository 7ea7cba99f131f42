// SPDX-License-Identifier: Apache-2.0

package systemd

import (
	"log/slog"
	"net"

	"github.com/coreos/go-systemd/v22/activation"
)

// Socket is the listening socket at path that the manager has made for the
// daemon (systemd.socket(5)), nil where it has made none. Closing it leaves the
// manager's own descriptor and the file: who connects meanwhile is served by the
// next daemon.
//
// Another socket that the manager passes on, as when the configuration has moved
// path, is closed, and logged. Socket is called once: it takes the descriptors,
// and their variables, away from the process (sd_listen_fds(3)).
func Socket(path string, log *slog.Logger) net.Listener {
	var found net.Listener
	for _, file := range activation.Files(true) {
		listener, err := net.FileListener(file)
		_ = file.Close() // the listener has a descriptor of its own
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
