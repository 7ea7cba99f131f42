// SPDX-License-Identifier: Apache-2.0

package host_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/e2e/browser"
	"github.com/kubic-project/image-update-agent/e2e/host"
	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
)

// checkRule allows joe to check, and nothing else.
const checkRule = `polkit.addRule(function(action, subject) {
	if (action.id == "org.opensuse.ImageUpdateAgent1.check" && subject.user == "joe") { return polkit.Result.YES; }
});
`

// superuser turns administrative access on or off by the method that Cockpit's own menu calls. Cockpit then reloads the
// page.
func superuser(tab *browser.Tab, method, args string) {
	browser.Eval[string](tab, fmt.Sprintf(`cockpit.dbus(null, { bus: "internal" }).call("/superuser", "cockpit.Superuser", %q, %s); ""`, method, args))
}

// TestHostCockpit installs the page's package on a booted system. alice reads, turns on administrative access, applies,
// and turns it off again; joe, whom a polkit rule allows to check, checks. Cockpit's menu lists the page and marks it
// when there are updates.
func TestHostCockpit(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, root host.Root) {
		h, n, port := installed(t, root, node.Options{Containerd: node.Containerd2, Kubelet: true})
		h.WriteFile("/etc/image-update-agent/config.yaml", story.HostConfig+"pullPolicy: IfNotPresent\n") // see HoldPulls
		h.Install(host.PageOf(t))
		address := hostCockpit(h, n)
		h.WriteFile("/etc/sudoers.d/alice", "alice ALL=(ALL) NOPASSWD: ALL\n")
		h.WriteFile("/etc/polkit-1/rules.d/40-joe.rules", checkRule)
		require.Equal(t, "running", h.Boot())
		for _, user := range []string{"alice", "joe"} {
			h.AddUser(user)
			h.Run(host.Command{Argv: []string{"chpasswd"}, Stdin: user + ":secret-" + user + "\n"})
		}
		h.Must("systemctl", "start", "polkit.service", "cockpit.socket")
		browser.AwaitServer(t, address)
		hostSays(t, h, "check")
		n.WaitAnswer(port, "4.0.0-rev1-build1.1")
		story.Rel(n, "demo/velum", "4.0.0-rev1-build1.2")
		hostSays(t, h, "check")

		alice := logIn(t, n, address, "alice")
		alice.Await("#limited", "You have limited access")
		alice.Await(story.PageState, "Updates are ready")
		node.Eventually(t, "alice may not", browser.Patience, func() error { return story.Disabled(alice, "#apply-all") })
		superuser(alice, "Start", `["sudo"]`)
		alice.AwaitNone("#limited")
		pass := story.HoldPulls(n)
		alice.Click("#apply-all")
		alice.Click("dialog [type=submit]")
		alice.Await(story.PageState, "being applied")
		pass()
		alice.Await("#result", "velum.yaml runs the update and is healthy")
		story.Answers(t, port, "4.0.0-rev1-build1.2")
		superuser(alice, "Stop", "[]")
		alice.Await("#limited", "You have limited access")
		node.Eventually(t, "alice may not any more", browser.Patience, func() error { return story.Disabled(alice, "#check") })

		story.Rel(n, "demo/velum", "4.0.0-rev1-build1.3")
		joe := logIn(t, n, address, "joe")
		joe.Await(story.PageState, "Up to date")
		joe.Click("#check")
		joe.Await("#result", "All registries were asked")
		joe.Await(story.PageState, "Updates are ready")
		assert.NoError(t, story.Disabled(joe, "#apply-all"))
		inShell(t, joe, address)
	})
}

// hostCockpit makes the host's Cockpit listen on a port of this test, and returns its address.
func hostCockpit(h *host.Host, n *node.Node) string {
	port := n.FreePort()
	h.DropIn("cockpit.socket", fmt.Sprintf("[Socket]\nListenStream=\nListenStream=127.0.0.1:%d\n", port))
	h.WriteFile("/etc/cockpit/cockpit.conf", "[WebService]\nAllowUnencrypted=true\n")
	return fmt.Sprintf("http://127.0.0.1:%d/", port)
}

// logIn enters name and password, and opens the page.
func logIn(t *testing.T, n *node.Node, address, user string) *browser.Tab {
	t.Helper()
	tab := browser.Open(t, n.Part("browser"), "en-US", address)
	tab.Type("#login-user-input", user)
	tab.Type("#login-password-input", "secret-"+user)
	tab.Click("#login-button")
	tab.AwaitNone("#login-button")
	tab.Go(address + browser.Page)
	return tab
}

// inShell finds the page in Cockpit's menu, with the mark for updates, and follows its link to the journal.
func inShell(t *testing.T, tab *browser.Tab, address string) {
	t.Helper()
	const frame = `document.querySelector("iframe[name*='image-updates']")?.contentDocument`
	tab.Go(address + "image-updates#/details")
	tab.Await("a[href*='image-updates']", "Image updates")
	node.Eventually(t, "the page in the shell", browser.Patience, func() error {
		if !browser.Eval[bool](tab, frame+`?.querySelector("#to-journal") != null`) {
			return fmt.Errorf("not there: %s", browser.Eval[string](tab, frame+`?.body?.innerText ?? ""`))
		}
		return nil
	})
	node.Eventually(t, "the mark in the menu", browser.Patience, func() error {
		if !browser.Eval[bool](tab, `document.querySelector("a[href*='image-updates'] svg") != null`) {
			return fmt.Errorf("none: %s", browser.Eval[string](tab, `document.querySelector("a[href*='image-updates']").outerHTML`))
		}
		return nil
	})
	browser.Eval[string](tab, frame+`.querySelector("#to-journal").click(); ""`)
	node.Eventually(t, "the journal", browser.Patience, func() error {
		if at := browser.Eval[string](tab, "location.pathname + location.hash"); at != "/system/logs#/?prio=debug&service=image-update-agent.service" {
			return fmt.Errorf("at %s", at)
		}
		return nil
	})
}
