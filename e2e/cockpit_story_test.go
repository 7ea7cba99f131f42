// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/e2e/browser"
	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/internal/bus/bustest"
)

// cockpitNode is a node whose daemon is on a system bus, to be seen in Cockpit.
type cockpitNode struct {
	*node.Node
	bus    bustest.Bus
	daemon *node.Process
}

// cockpits are Debian's, by the part of tools/setup that has them.
var cockpits = map[string]string{"287": "host", "337": "host-new"}

func startCockpitNode(t *testing.T, options node.Options, config string) *cockpitNode {
	t.Helper()
	s := &cockpitNode{bus: bustest.System(t, "../packaging/dbus/org.opensuse.ImageUpdateAgent1.conf", "../internal/api/testdata/polkit.conf")}
	s.Node = node.Start(t, options)
	s.WriteFile(configFile, config)
	return s
}

// run starts the daemon, which polls when it is asked to.
func (s *cockpitNode) run() {
	s.daemon = s.StartAgentWith([]string{"UPDATE_POLLING_INTERVAL=0", "DBUS_SYSTEM_BUS_ADDRESS=" + s.bus.Address}, "run")
}

// open shows the page to a user of the node.
func (s *cockpitNode) open(t *testing.T, cockpit, language string, uid int) *browser.Tab {
	t.Helper()
	page, err := filepath.Abs("../cockpit")
	require.NoError(t, err)
	c := browser.Cockpit{Part: cockpits[cockpit], Page: page, UID: uid, Bus: filepath.Dir(strings.TrimPrefix(s.bus.Address, "unix:path="))}
	return browser.Open(t, s.Part("browser"), language, c.Start(t, s.Node))
}

const (
	pageState = ".state"
	pagePod   = ".pod[data-pod='velum.yaml']"
)

func TestPageShowsTheNode(t *testing.T) {
	t.Parallel()
	s := startCockpitNode(t, node.Options{Containerd: node.Containerd2, Kubelet: true}, "applyTimeout: 5s\nsettle: 1s\n")
	port := s.FreePort()
	template(s.Node, port, s.Registry.Ref("demo/velum:__TAG__"))
	rel(s.Node, "demo/velum", "4.0.0-rev1-build1.1")
	cycle(t, s.Node, 0)
	s.WaitAnswer(port, "4.0.0-rev1-build1.1")
	s.run()
	page := s.open(t, "287", "en-US", 0)
	page.Await(pagePod, "4.0.0-rev1-build1.1")
	page.Picture("current")
	page.Click("#check")
	page.Await(pageState, "Up to date")
	rel(s.Node, "demo/velum", "4.0.0-rev1-build1.2")
	page.Click("#check")
	page.Await(pageState, "Updates are ready")
	page.Picture("staged")
	testModel(t, page)
	require.Empty(t, page.Console())
}

// The model is pure, so its own tests need a browser and no node.
func testModel(t *testing.T, page *browser.Tab) {
	t.Helper()
	require.Greater(t, browser.Eval[int](page, `import("./test/model.js").then(tests => tests.count())`), 40)
	require.Empty(t, browser.Eval[[]string](page, `import("./test/model.js").then(tests => tests.failures())`))
}
