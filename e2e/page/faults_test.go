// SPDX-License-Identifier: Apache-2.0

package page

import (
	"syscall"
	"testing"

	"github.com/godbus/dbus/v5"
	"github.com/stretchr/testify/assert"

	"github.com/kubic-project/image-update-agent/e2e/browser"
	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
)

// staged is a node on which an update waits, and its page.
func (s *cockpitNode) staged(t *testing.T) (port int) {
	t.Helper()
	port = s.FreePort()
	story.Template(s.Node, port, s.Registry.Ref("demo/velum:__TAG__"))
	story.Rel(s.Node, "demo/velum", "4.0.0-rev1-build1.1")
	story.Cycle(t, s.Node, 0)
	s.WaitAnswer(port, "4.0.0-rev1-build1.1")
	story.Rel(s.Node, "demo/velum", "4.0.0-rev1-build1.2")
	s.run()
	story.Check(t, s.Node)
	return port
}

const quickConfig = "settle: 1s\n"

// The page outlives the daemon and the bus, and never shows what it does not know.
func TestPageFaults(t *testing.T) {
	t.Parallel()
	onEachCockpit(t, func(t *testing.T, version string) {
		s := startCockpitNode(t, node.Options{Containerd: node.Containerd2, Kubelet: true}, "settle: 10m\n") // the daemon is killed before
		port := s.staged(t)
		page := s.open(t, version, "en-US", 0)
		page.Await(story.PageState, "Updates are ready")

		s.daemon.Kill()
		page.Await("#down", "The daemon does not run")
		page.Await(story.PageState, "Last known: Updates are ready")
		page.Await(pagePod, "4.0.0-rev1-build1.2")
		assert.Equal(t, "true", page.Attribute("#check", "aria-disabled"))
		assert.Equal(t, "unknown", pageIcon(page))
		page.Picture("down")
		s.run()
		page.AwaitNone("#down")
		page.Await(story.PageState, "Updates are ready")

		pageIsKilledInAnApply(t, s, page, port)
		pageIsReloaded(t, s, page)
		busRestarts(t, s, page, version)
		assert.Empty(t, page.Console())
	})
}

// The daemon is killed while it applies. The page says so, and what the next daemon makes of it.
func pageIsKilledInAnApply(t *testing.T, s *cockpitNode, page *browser.Tab, port int) {
	t.Helper()
	page.Click("#apply-all")
	page.Click("dialog [type=submit]")
	page.Await("#work", "Verifying")
	s.daemon.Kill()
	page.Await("#dialog-problem", "The daemon ended before it answered")
	page.Click("dialog [data-do=dismiss]")
	page.Await("#down", "The daemon does not run")
	page.AwaitNone("#work")
	s.WriteFile(story.ConfigFile, quickConfig)
	s.run()
	page.AwaitNone("#down")
	page.Await(story.PageState, "Up to date")
	page.Await(pagePod, "4.0.0-rev1-build1.2")
	story.Answers(t, port, "4.0.0-rev1-build1.2")
}

// A hold of the configuration is shown as soon as it is loaded, although nothing is offered; nobody can end it here.
func pageIsReloaded(t *testing.T, s *cockpitNode, page *browser.Tab) {
	t.Helper()
	s.WriteFile(story.ConfigFile, quickConfig+"repositories:\n- match: "+s.Registry.Ref("demo/velum")+"\n  hold: not yet\n")
	s.daemon.Signal(syscall.SIGHUP)
	page.Await("#holds", "the configuration")
	assert.Zero(t, browser.Eval[int](page, "document.querySelectorAll('#holds [data-do=resume]').length"))
	s.WriteFile(story.ConfigFile, quickConfig)
	s.daemon.Signal(syscall.SIGHUP)
	page.AwaitNone("#holds")
}

// Cockpit's bridge in C finds the next bus; the one in Python never does, and the page says so. It notices the end by the
// next status that the daemon writes.
func busRestarts(t *testing.T, s *cockpitNode, page *browser.Tab, version string) {
	t.Helper()
	s.bus.Stop()
	s.StartAgent("check").Wait(story.Ready)
	page.Await("#down", "The system bus does not answer")
	page.Await(story.PageState, "Last known")
	s.bus.Again(t)
	if version != "287" {
		page.Await("#down", "log out of Cockpit and in again")
		page = s.open(t, version, "en-US", 0)
	}
	page.Await("#check:not([aria-disabled])", "Check now")
	page.Click("#check")
	page.Await("#result", "All registries were asked")
}

// A user without rights sees everything and may do nothing; with a rule of polkit, what it allows.
func TestPageRights(t *testing.T) {
	t.Parallel()
	s := startCockpitNode(t, node.Options{Containerd: node.Containerd2, Kubelet: true}, quickConfig)
	s.staged(t)
	const joe = 1000
	page := s.open(t, "287", "en-US", joe)
	page.Await("#limited", "You have limited access")
	page.Await(story.PageState, "Updates are ready")
	page.Await(pagePod, "4.0.0-rev1-build1.2")
	for _, button := range []string{"#check", "#hold-all", "#apply-all", pagePod + " [data-do=apply]", pagePod + " [data-do=hold]"} {
		node.Eventually(t, button, browser.Patience, func() error { return story.Disabled(page, button) })
		assert.Contains(t, page.Attribute(button, "title"), "administrative access", button)
	}
	page.Picture("limited")
	assert.Empty(t, page.Console())

	asked := make(chan string, 64)
	s.bus.Serve(t, "org.freedesktop.PolicyKit1", "/org/freedesktop/PolicyKit1/Authority", "org.freedesktop.PolicyKit1.Authority", map[string]any{
		"CheckAuthorization": func(_ polkitSubject, action string, _ map[string]string, _ uint32, _ string) (polkitAnswer, *dbus.Error) {
			asked <- action
			return polkitAnswer{Yes: action == "org.opensuse.ImageUpdateAgent1.check", Details: map[string]string{}}, nil
		},
	})
	page = s.open(t, newestCockpit(), "en-US", joe)
	page.Await("#check:not([aria-disabled])", "Check now")
	page.Click("#check")
	page.Await("#result", "All registries were asked")
	assert.Empty(t, browser.Eval[string](page, "document.querySelector('#limited')?.textContent ?? ''"))
	assert.NoError(t, story.Disabled(page, "#apply-all"))
	assert.Contains(t, drain(asked), "org.opensuse.ImageUpdateAgent1.check")
	assert.Empty(t, page.Console())
}

type polkitSubject struct {
	Kind    string
	Details map[string]dbus.Variant
}

type polkitAnswer struct {
	Yes, Challenge bool
	Details        map[string]string
}

func drain(all chan string) []string {
	var out []string
	for len(all) > 0 {
		out = append(out, <-all)
	}
	return out
}
