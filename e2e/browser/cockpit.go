// SPDX-License-Identifier: Apache-2.0

// Package browser shows a page of Cockpit to tests in a real browser: Cockpit's web server and bridge without a login,
// or those of a booted host, and Chromium without a window.
package browser

import (
	"fmt"
	"net/http"
	"path/filepath"

	"github.com/kubic-project/image-update-agent/e2e/node"
)

// Patience is how long a page may take to show what has happened.
const Patience = node.Patience

// Page is the page's address below Cockpit's.
const Page = "cockpit/@localhost/image-updates/index.html"

// Cockpit is a web server with one session, which needs no login.
type Cockpit struct {
	Part string // of tools/setup: a root with cockpit-ws and cockpit-bridge
	Page string // the directory of the page
	Bus  string // the directory of the system bus's socket, which is called bus
	UID  int    // of the session
}

// session enters a copy of the part, where page, bus, runtime directory and program of the node are in their places,
// and so is containerd's directory, which containerd names by its path. It ends with its last page. The arguments are
// the directory of the session, the part, the page, the bus, the node's root, the agent's program, the uid, the port
// and containerd's directory.
const session = `dir=$1 part=$2 page=$3 bus=$4 node=$5 program=$6 uid=$7 port=$8 containerd=$9
mount -t tmpfs cockpit "$dir"
mkdir "$dir/upper" "$dir/work" "$dir/tree"
mount -t overlay cockpit -o "lowerdir=$part,upperdir=$dir/upper,workdir=$dir/work" "$dir/tree"
cd "$dir/tree"
mkdir -p usr/share/cockpit/image-updates run/image-update-agent run/dbus mnt/node ".$containerd"
cp "$program" opt/agent
printf '#!/bin/sh\nexec /opt/agent "$@" --root /mnt/node\n' >usr/bin/image-update-agent
chmod 755 usr/bin/image-update-agent
if [ "$uid" != 0 ]; then
	echo "joe:x:$uid:$uid::/tmp:/bin/sh" >>etc/passwd
	echo "joe:x:$uid:" >>etc/group
fi
mount --bind "$page" usr/share/cockpit/image-updates
mount --bind "$bus" run/dbus
mount --rbind "$node" mnt/node
[ ! -d "$containerd" ] || mount --bind "$containerd" ".$containerd" # a stand-in of the daemon has none
mount --bind "$node/run/image-update-agent" run/image-update-agent
mount -t proc cockpit proc
mount --rbind /dev dev
exec chroot . setpriv --pdeathsig keep --reuid "$uid" --regid "$uid" --clear-groups env -i \
	PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp LANG=C.UTF-8 DBUS_SYSTEM_BUS_ADDRESS=unix:path=/run/dbus/bus \
	/usr/lib/cockpit/cockpit-ws --local-session=/usr/bin/cockpit-bridge --no-tls --port "$port" --address 127.0.0.1`

// Start starts the server beside a node, and returns the page's address. It ends with the node.
func (c Cockpit) Start(tb node.TB, n *node.Node) string {
	tb.Helper()
	port := n.FreePort()
	name := fmt.Sprintf("cockpit%d", port)
	dir := filepath.Join(n.Dir, name)
	n.Shell(fmt.Sprintf("mkdir -p %s %s", dir, n.Path("run/image-update-agent")))
	n.Program(name, "/usr/bin/unshare", "--mount", "--propagation", "private", "sh", "-euc", session, "sh",
		dir, n.Part(c.Part), c.Page, c.Bus, n.Root, n.AgentProgram(), fmt.Sprint(c.UID), fmt.Sprint(port),
		filepath.Join(n.Dir, "containerd"))
	address := fmt.Sprintf("http://127.0.0.1:%d/", port)
	AwaitServer(tb, address)
	return address + Page
}

// AwaitServer waits until a web server answers.
func AwaitServer(tb node.TB, address string) {
	tb.Helper()
	client := http.Client{Timeout: Patience}
	node.Eventually(tb, "cockpit-ws answers", Patience, func() error {
		request, err := http.NewRequestWithContext(tb.Context(), http.MethodGet, address, nil)
		if err != nil {
			return err
		}
		r, err := client.Do(request)
		if err != nil {
			return err
		}
		return r.Body.Close()
	})
}
