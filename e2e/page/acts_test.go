// SPDX-License-Identifier: Apache-2.0

package page

import (
	"testing"
	"time"

	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/catalog"
	"github.com/kubic-project/image-update-agent/agent/fleet"
	"github.com/kubic-project/image-update-agent/agent/localregistry"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/e2e/browser"
	"github.com/kubic-project/image-update-agent/e2e/story"
)

// busy is a status with everything that a person can end: holds in mode auto, a lock, a catalog, a local registry.
func busy() status.Status {
	s := podsOf(1)
	at := time.Now().UTC()
	s.Auto = &status.AutoStatus{Open: true}
	s.StandingHolds = []status.StandingHold{
		{Repository: "*", Name: status.HoldRequested, Reason: "until the demo", By: status.Actor{Kind: status.ByPerson, User: "alice"}},
		{Repository: "registry.example/a/image0", Name: status.HoldRequested, By: status.Actor{Kind: status.ByPerson, User: "alice"}},
	}
	s.Lock = &fleet.LockStatus{State: fleet.LockHeld, Kept: true, PodManifests: []string{"etcd.yaml"}, Holders: []fleet.LockHolder{}}
	s.Catalog = &catalog.Status{Catalog: "registry.example/catalog:stage", Version: 7, Created: &at, Error: "version 6 is older than version 7"}
	s.LocalRegistry = &localregistry.Status{Registries: []localregistry.RegistryStatus{{
		Registry: "other.example", Position: localregistry.Gate, Tags: []localregistry.ServedTag{}, Unanswered: []localregistry.UnservedTag{},
	}}}
	return s
}

// holdPreview has the next program that the page runs wait until answer() is called in the page.
func holdPreview(page *browser.Tab) {
	browser.Eval[string](page, `{
		const { spawn } = cockpit;
		cockpit.spawn = (...args) => {
			cockpit.spawn = spawn;
			const held = new Promise(resolve => { window.answer = resolve; });
			return { stream: write => held.then(() => spawn(...args).stream(write)) };
		};
		""
	}`)
}

// Each act has a dialog that says what it means, and asks the daemon for it.
func TestPageActs(t *testing.T) {
	t.Parallel()
	onEachCockpit(t, func(t *testing.T, version string) {
		d := startDaemon(t, busy())
		d.Shell("mkdir -p " + d.Path("etc/containerd/certs.d/registry.example"))
		d.WriteFile("etc/containerd/certs.d/registry.example/hosts.toml", "[host.\"https://mirror.example\"]\n")
		page := d.open(t, version, "en-US", 0)
		page.Await(story.PageState, "Updates are ready")
		const submit = "dialog [type=submit]"
		for _, c := range []struct{ open, means, asks, done string }{
			{"#resume-all", "Updates are applied automatically on this node", `resume [] true`, "All holds have ended"},
			{"[data-hold='*'] [data-do=resume]", "Updates are applied automatically on this node", `resume [] true`, "All holds have ended"},
			{"#release-lock", "Other nodes may then restart their pods", "release the lock", "The lock was released"},
			{"#forget-catalog", "takes any version with a valid signature", "forget the catalog", "The catalog was read again"},
			{"[data-do=enable]", "pods start without the registry", "enable registry.example false", "The local registry answers for registry.example"},
		} {
			page.Show("details")
			page.Click(c.open)
			page.Await("dialog", c.means)
			page.Click(submit)
			assert.Equal(t, c.asks, receive(t, page, d.acts))
			page.Await("#result", c.done)
			page.AwaitNone("dialog")
			page.Click("#result [aria-label=Close]")
		}
		page.Click("[data-hold='registry.example/a/image0'] [data-do=resume]")
		assert.Equal(t, `resume ["registry.example/a/image0"] false`, receive(t, page, d.acts))
		page.Await("#result", "The hold has ended")

		holdPreview(page)
		page.Click("[data-do=enable]")
		page.Await("dialog", "Asking")
		require.Equal(t, "true", page.Attribute(submit, "aria-disabled"), "nobody confirms what was not shown")
		page.Press(kb.Enter)
		browser.Eval[string](page, "window.answer(); ''")
		page.Await("#preview", "/etc/containerd/certs.d/registry.example/hosts.toml becomes:")
		page.Await("#preview pre", "http://127.0.0.1:334")
		page.Click("#gate")
		page.Await("#preview pre", "local registry, gate")
		page.Click(submit)
		assert.Equal(t, "enable registry.example true", receive(t, page, d.acts))
		page.AwaitNone("dialog")

		page.Click("[data-do=disable]")
		page.Await("dialog", "asks only the other hosts")
		page.Await("#preview", "stays as it is")
		page.Click(submit)
		assert.Equal(t, "disable other.example", receive(t, page, d.acts))
		page.Await("#dialog-problem", "The file stays as it is")
		page.Await("#dialog-problem", "hosts.toml was edited")
		assert.Empty(t, page.Console())
	})
}
