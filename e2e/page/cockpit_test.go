// SPDX-License-Identifier: Apache-2.0

package page

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/e2e/browser"
	"github.com/kubic-project/image-update-agent/e2e/host"
	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
	"github.com/kubic-project/image-update-agent/internal/face/bus/bustest"
)

// cockpitNode is a node whose daemon is on a system bus, to be seen in Cockpit.
type cockpitNode struct {
	*node.Node
	bus    bustest.Bus
	daemon *node.Process
}

// cockpits are Debian's, by the part of tools/setup that has them.
var cockpits = map[string]string{"287": "host", "337": "host-new"}

// onEachCockpit runs a test on the Cockpit of each system.
func onEachCockpit(t *testing.T, test func(t *testing.T, version string)) {
	t.Helper()
	for version, part := range cockpits {
		if !slices.Contains(host.Roots(), host.Root(part)) {
			continue
		}
		t.Run(version, func(t *testing.T) { t.Parallel(); test(t, version) })
	}
}

// newestCockpit is for tests that need only one.
func newestCockpit() string {
	if node.Soak {
		return "337"
	}
	return "287"
}

func startCockpitNode(t *testing.T, options node.Options, config string) *cockpitNode {
	t.Helper()
	s := &cockpitNode{bus: bustest.System(t, "../../packaging/dbus/org.opensuse.ImageUpdateAgent1.conf", "../../internal/face/api/testdata/polkit.conf")}
	s.Node = node.Start(t, options)
	s.WriteFile(story.ConfigFile, config)
	return s
}

// run starts the daemon, which polls when it is asked to.
func (s *cockpitNode) run() {
	s.daemon = s.StartAgentWith([]string{"UPDATE_POLLING_INTERVAL=0", "DBUS_SYSTEM_BUS_ADDRESS=" + s.bus.Address}, "run")
}

// open shows the page to a user of the node.
func (s *cockpitNode) open(t testing.TB, cockpit, language string, uid int) *browser.Tab {
	t.Helper()
	page, err := filepath.Abs("../../cockpit")
	require.NoError(t, err)
	c := browser.Cockpit{Part: cockpits[cockpit], Page: page, UID: uid, Bus: filepath.Dir(strings.TrimPrefix(s.bus.Address, "unix:path="))}
	return browser.Open(t, s.Part("browser"), language, c.Start(t, s.Node))
}

const (
	pagePod = ".pod[data-pod='velum.yaml']"
)

// What an admin sees and does, from the first check to a release that fails, on each Cockpit.
func TestPageStory(t *testing.T) {
	t.Parallel()
	onEachCockpit(t, func(t *testing.T, version string) {
		s := startCockpitNode(t, node.Options{Containerd: node.Containerd2, Kubelet: true},
			"applyTimeout: 2m\nsettle: 3s\npullPolicy: IfNotPresent\n") // an apply pulls first, see HoldPulls
		port := s.FreePort()
		story.Template(s.Node, port, s.Registry.Ref("demo/velum:__TAG__"))
		s.Registry.Publish("demo/velum", "4.0.0-rev1-build1.1", withPackage("3.1.4-r0", 100<<10))
		s.run()
		page := s.open(t, version, "en-US", 0)
		testModel(t, page)

		page.Await(story.PageState, "Not checked yet")
		assert.Equal(t, "info", pageIcon(page), "nothing was asked")
		page.Picture("unchecked")
		page.Click("#check")
		page.Await(story.PageState, "Up to date")
		page.Await("#result", "All registries were asked")
		page.Await(pagePod, "4.0.0-rev1-build1.1")
		s.WaitAnswer(port, "4.0.0-rev1-build1.1")
		assert.Zero(t, browser.Eval[int](page, "document.querySelectorAll('[data-do=rollback]').length"), "there is nothing to return to")
		page.Picture("current")

		pageHearsOfOthers(t, s, page)
		pageApplies(t, s, page, port)
		pageRollsBack(t, s, page, port)
		pageHolds(t, s, page)
		pageIsStale(t, s, page)
		pageFails(t, s, page, port)
		pageAsksDoctor(t, page)
		assert.Empty(t, page.Console())
	})
}

// withPackage is an image with a package of this version, and so many other bytes.
func withPackage(version string, size int64) node.Image {
	installed := "P:libssl3\nV:" + version + "\no:openssl\n\nP:musl\nV:1.2.5-r0\no:musl\n\n"
	return node.Image{Layers: []node.Layer{{Seed: uint64(size), Size: size}, {File: "lib/apk/db/installed", Text: installed}}}
}

// Somebody checks on the command line. The page shows the pull while it runs, then the offer.
func pageHearsOfOthers(t *testing.T, s *cockpitNode, page *browser.Tab) {
	t.Helper()
	s.Registry.Publish("demo/velum", "4.0.0-rev1-build1.2", withPackage("3.1.4-r1", 8<<20))
	s.Registry.Slow(128 << 10)
	asked := s.StartAgent("check")
	page.Await("#work", "velum:4.0.0-rev1-build1.2")
	assert.NotEqual(t, "ok", pageIcon(page), "a node that is being checked is not green")
	page.Picture("pulling")
	s.Registry.Slow(0)
	asked.Wait(story.Ready)
	page.Await(story.PageState, "Updates are ready")
	page.AwaitNone("#work")
	page.Await(pagePod, "rebuild")
	page.Picture("staged")
}

func pageApplies(t *testing.T, s *cockpitNode, page *browser.Tab, port int) {
	t.Helper()
	page.Click(pagePod + " [data-do=apply]")
	page.Await("dialog", "4.0.0-rev1-build1.1 → 4.0.0-rev1-build1.2")
	page.Await("dialog", "restarts")
	page.Click("#inside summary")
	page.Await("#inside", "Packages that change: 1. The same: 1.")
	page.Await("#inside", "libssl3 3.1.4-r0 → 3.1.4-r1")
	page.Picture("apply")
	page.Click("dialog [data-do=dismiss]")
	page.AwaitNone("dialog")
	story.Answers(t, port, "4.0.0-rev1-build1.1")

	other := s.open(t, "287", "en-US", 0) // another tab sees what this one does
	other.Await(story.PageState, "Updates are ready")
	pass := story.HoldPulls(s.Node)
	page.Click("#apply-all")
	page.Click("dialog [type=submit]")
	page.Await(story.PageState, "being applied")
	other.Await(story.PageState, "being applied")
	page.Picture("applying")
	pass()
	page.Await("#result", "velum.yaml runs the update and is healthy")
	page.Await(story.PageState, "Up to date")
	other.Await(story.PageState, "Up to date")
	story.Answers(t, port, "4.0.0-rev1-build1.2")
}

func pageRollsBack(t *testing.T, s *cockpitNode, page *browser.Tab, port int) {
	t.Helper()
	page.Click(pagePod + " [data-do=rollback]")
	page.Await("dialog", "Roll back velum.yaml?")
	page.Await("dialog", "4.0.0-rev1-build1.2 → 4.0.0-rev1-build1.1")
	page.Picture("rollback")
	page.Click("dialog [type=submit]")
	page.Await("#result", "velum.yaml runs the previous release again")
	page.Await(pagePod, "A person rolled it back to 4.0.0-rev1-build1.1. Denied on this node: 4.0.0-rev1-build1.2")
	story.Answers(t, port, "4.0.0-rev1-build1.1")
	for _, text := range []string{"applied", "rolled back", "root", "4.0.0-rev1-build1.2"} {
		page.Await("#history", text)
	}
	page.Picture("history")
}

func pageHolds(t *testing.T, s *cockpitNode, page *browser.Tab) {
	t.Helper()
	story.Rel(s.Node, "demo/velum", "4.0.0-rev2-build2.1")
	page.Click("#check")
	page.Await(story.PageState, "Updates are ready")
	page.Click(pagePod + " [data-do=hold]")
	page.Type("#hold-reason", "not before the demo")
	page.Click("dialog [type=submit]")
	page.Await("#result", "velum.yaml is held")
	page.Await(story.PageState, "held")
	page.Await(pagePod, "not before the demo")
	page.Await(pagePod, "Resume ends it")
	assert.Equal(t, "true", page.Attribute(pagePod+" [data-do=apply]", "aria-disabled"))
	page.Picture("held")
	page.Click(pagePod + " [data-do=resume]")
	page.Await(story.PageState, "Updates are ready")
	page.Click("#hold-all")
	page.Await("dialog", "Hold everything?")
	browser.Eval[string](page, `document.querySelector("#hold-until").value = "2020-01-01T00:00"; ""`)
	page.Click("dialog [type=submit]")
	page.Await("#dialog-problem", "The end is in the past")
	browser.Eval[string](page, `document.querySelector("#hold-until").value = "2099-01-01T00:00"; ""`)
	page.Click("dialog [type=submit]")
	page.Await("#holds", "All images")
	page.Await("#holds", "root")
	page.Click("#resume-all")
	page.AwaitNone("#holds")
	page.Await(story.PageState, "Updates are ready")
	page.Await("#hold-all", "Hold everything")
}

func pageIsStale(t *testing.T, s *cockpitNode, page *browser.Tab) {
	t.Helper()
	s.Registry.Down()
	page.Click("#check")
	page.Await("#result", "A registry does not answer")
	page.Await(story.PageState, "A registry does not answer")
	page.Await("#registries", "connection refused")
	page.Await("#registries", "Next try")
	page.Picture("stale")
	s.Registry.Up()
	page.Click("#check")
	page.Await(story.PageState, "Updates are ready")
}

func pageFails(t *testing.T, s *cockpitNode, page *browser.Tab, port int) {
	t.Helper()
	page.Click("#apply-all")
	page.Click("dialog [type=submit]")
	page.Await("#result", "is healthy")
	s.Registry.PublishFaulty("demo/velum", "4.0.0-rev2-build2.2", node.Image{}, node.Crash)
	page.Click("#check")
	page.Await(pagePod, "4.0.0-rev2-build2.2")
	page.Click(pagePod + " [data-do=apply]")
	page.Click("dialog [type=submit]")
	page.Await(story.PageState, "velum.yaml was rolled back") // the offer has changed by then
	page.Await("#dialog-problem", "It failed")
	page.Await("#dialog-problem", "velum.yaml")
	page.Click("dialog [data-do=dismiss]")
	page.Await(pagePod, "Rolled back to 4.0.0-rev2-build2.1")
	page.Picture("failed")
	story.Answers(t, port, "4.0.0-rev2-build2.1")
	page.Click(pagePod + " [data-do=retry]")
	page.Await("dialog", "Try velum.yaml again?")
	page.Await("dialog .moves", "4.0.0-rev2-build2.1 → 4.0.0-rev2-build2.2")
	page.Await("dialog .moves", "Last time: ")
	page.Click("dialog [type=submit]")
	page.Await("#dialog-problem", "It failed")
	page.Press(kb.Escape)
	page.AwaitNone("dialog")
}

func pageAsksDoctor(t *testing.T, page *browser.Tab) {
	t.Helper()
	page.Click("#tab-details")
	page.Await("#plan", "Nothing without approval")
	page.Await("#doctor", "configuration")
	page.Picture("details")
	page.Click("#tab-overview")
	page.Await(story.PageState, "velum.yaml was rolled back")
}

// pageIcon is what the page shows beside the state: "ok" is green.
func pageIcon(page *browser.Tab) string { return page.Attribute(story.PageState, "data-icon") }

// The model is pure, so its own tests need a browser and no node.
func testModel(t *testing.T, page *browser.Tab) {
	t.Helper()
	require.Greater(t, browser.Eval[int](page, `import("./test/model.js").then(tests => tests.count())`), 40)
	require.Empty(t, browser.Eval[[]string](page, `import("./test/model.js").then(tests => tests.failures())`))
}
