// SPDX-License-Identifier: Apache-2.0

package page

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/e2e/browser"
	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
)

// axe is the code that checks the accessibility of what a page shows.
func axe(t *testing.T, n *node.Node) string {
	t.Helper()
	code, err := os.ReadFile(filepath.Join(n.Part("browser"), "axe.js"))
	require.NoError(t, err)
	return string(code)
}

// accessible asserts that a person with a screen reader, or with weak eyes, can use what the page shows.
func accessible(t *testing.T, page *browser.Tab, code, what string) {
	t.Helper()
	assert.Empty(t, violations(page, code, "{}"), what)
}

// readable asserts that the page's colors differ enough.
func readable(t *testing.T, page *browser.Tab, code, what string) {
	t.Helper()
	assert.Empty(t, violations(page, code, `{runOnly: ["color-contrast"]}`), what)
}

// violations returns what axe finds, with its options.
func violations(page *browser.Tab, code, options string) []string {
	if browser.Eval[string](page, "typeof axe") == "undefined" {
		browser.Eval[string](page, code+"; ''")
	}
	// Cockpit changes its theme with the next frame.
	return browser.Eval[[]string](page, fmt.Sprintf(`new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))
		.then(() => axe.run(%s)).then(found => found.violations.flatMap(v =>
			v.nodes.map(n => v.id + ": " + n.target + ": " + n.failureSummary)))`, options))
}

// wide reports whether the page is wider than the window.
func wide(page *browser.Tab) bool {
	return browser.Eval[bool](page, "document.documentElement.scrollWidth > document.documentElement.clientWidth")
}

// The same page in the dark, on a telephone, by keyboard, to a screen reader, and in German.
func TestPageLook(t *testing.T) {
	t.Parallel()
	s := startCockpitNode(t, node.Options{Containerd: node.Containerd2, Kubelet: true}, "settle: 1s\n")
	port := s.FreePort()
	story.Template(s.Node, port, s.Registry.Ref("demo/velum:__TAG__"))
	story.Rel(s.Node, "demo/velum", "4.0.0-rev1-build1.1")
	story.Cycle(t, s.Node, 0)
	s.WaitAnswer(port, "4.0.0-rev1-build1.1")
	story.Rel(s.Node, "demo/velum", "4.0.0-rev1-build1.2")
	story.Rel(s.Node, "demo/velum", "5.0.0-rev1-build1.1")
	s.run()
	code := axe(t, s.Node)
	page := s.open(t, newestCockpit(), "en-US", 0)
	page.Click("#check")
	page.Await(story.PageState, "Updates are ready")
	page.Click("summary")
	page.Await(pagePod, "5.0.0-rev1")

	accessible(t, page, code, "light")
	page.Prefer("dark")
	accessible(t, page, code, "dark")
	page.Picture("dark")
	byKeyboard(t, page, code)
	page.Prefer("light")
	page.Resize(390, 844)
	assert.False(t, wide(page), "nothing is cut off at 390 px")
	accessible(t, page, code, "narrow")
	page.Picture("narrow")
	page.Click("#tab-details")
	page.Await("#doctor", "containerd")
	page.AwaitNone(".pf-v6-c-spinner")
	assert.False(t, wide(page), "nor on the second tab")
	accessible(t, page, code, "plan and checks")
	assert.Empty(t, page.Console())

	german := s.open(t, "287", "de-DE", 0)
	german.Await(story.PageState, "Updates sind bereit")
	german.Await(pagePod, "neuer Build")
	assert.Equal(t, "de", browser.Eval[string](german, "document.documentElement.lang"))
	accessible(t, german, code, "German")
	german.Picture("german")
	assert.Empty(t, german.Console())
}

// byKeyboard holds velum without a mouse. The dialog keeps the focus and gives it back.
func byKeyboard(t *testing.T, page *browser.Tab, code string) {
	t.Helper()
	browser.Eval[string](page, `document.querySelector(".pod [data-do=hold]").focus(); ''`)
	page.Press(kb.Enter)
	page.Await("dialog", "Hold velum.yaml?")
	accessible(t, page, code, "dialog")
	for range 5 {
		page.Press(kb.Tab)
		assert.True(t, browser.Eval[bool](page, `document.activeElement === document.body || document.activeElement.closest("dialog") !== null`))
	}
	page.Press(kb.Escape)
	page.AwaitNone("dialog")
	assert.Equal(t, "hold", browser.Eval[string](page, "document.activeElement.dataset.do ?? document.activeElement.tagName"))
	browser.Eval[string](page, `document.querySelector("#tab-overview").focus(); ''`)
	page.Press(kb.ArrowRight)
	page.Await("#panel-details", "Checks of the node")
	assert.Equal(t, "tab-details", browser.Eval[string](page, "document.activeElement.id"))
	page.Press(kb.ArrowLeft)
	page.Await(story.PageState, "Updates are ready")
}

// What a registry and a person write is text, however it looks like HTML.
func TestPageShowsHostileTextAsText(t *testing.T) {
	t.Parallel()
	onEachCockpit(t, func(t *testing.T, version string) {
		const hostile = `<img src=x onerror="document.title='owned'">`
		s := startCockpitNode(t, node.Options{Containerd: node.Containerd2}, "manage: ['*.yaml']\n")
		s.WriteFile("etc/kubernetes/manifests/<img src=x>.yaml", story.VelumTemplate(s.FreePort(), s.Registry.Ref("demo/velum:4.0.0")))
		s.Registry.Intercept(func(w http.ResponseWriter, _ *http.Request) bool {
			w.Header().Set("Docker-Content-Digest", hostile)
			return true
		})
		s.run()
		page := s.open(t, version, "en-US", 0)
		page.Click("#check")
		page.Await("#registries", "<img src=x")
		page.Click(".pod [data-do=hold]")
		page.Type("#hold-reason", hostile)
		page.Click("dialog [type=submit]")
		page.Await(".pod", "<img src=x")
		assert.Zero(t, browser.Eval[int](page, "document.querySelectorAll('img').length"))
		assert.Equal(t, "Image updates", browser.Eval[string](page, "document.title"))
		assert.Empty(t, page.Console())
	})
}

// A node with 500 images is shown whole, and can be scrolled.
func TestPageShowsManyImages(t *testing.T) {
	t.Parallel()
	s := startCockpitNode(t, node.Options{Containerd: node.Containerd2}, "{}\n")
	var containers strings.Builder
	for n := range 10 {
		fmt.Fprintf(&containers, "  - name: c%d\n    image: %s\n", n, s.Registry.Ref("demo/velum:4.0.0"))
	}
	for n := range 50 {
		s.WriteFile(fmt.Sprintf("etc/kubernetes/manifests/pod%d.yaml", n), fmt.Sprintf(
			"apiVersion: v1\nkind: Pod\nmetadata:\n  name: pod%d\nspec:\n  containers:\n%s", n, containers.String()))
	}
	s.run()
	page := s.open(t, "287", "en-US", 0)
	page.Await(".pod[data-pod='pod49.yaml']", "pod49.yaml")
	browser.Eval[string](page, "document.querySelectorAll('[data-do=fold]').forEach(one => one.click()); ''")
	page.Await(".pod[data-pod='pod49.yaml']", "c9")
	assert.Equal(t, 500, browser.Eval[int](page, "document.querySelectorAll('.pod tr:not(.pod-row)').length"))
	assert.True(t, browser.Eval[bool](page, `(() => {
		const last = document.querySelector(".pod[data-pod='pod49.yaml']");
		last.scrollIntoView();
		return last.getBoundingClientRect().top < innerHeight;
	})()`))
	assert.False(t, wide(page))
	assert.Empty(t, page.Console())
}
