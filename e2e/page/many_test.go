// SPDX-License-Identifier: Apache-2.0

package page

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp/kb"
	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/e2e/browser"
	"github.com/kubic-project/image-update-agent/e2e/story"
	format "github.com/kubic-project/image-update-agent/internal/catalog"
)

// manyOffers is a node with 14 pods, of which ten are offered an update.
func manyOffers() status.Status {
	s := podsOf(14)
	for n := range 10 {
		s.Images[n].Offered, s.Images[n].Change, s.Images[n].Staged = &status.Named{Tag: "4.0.0-rev1-build1.2", Digest: digest.FromString("2")}, "rebuild", true
		s.PodManifests[n].Change = "rebuild"
	}
	s.Images[0].Brings = &format.Brought{Severity: "important", Fixes: []string{"CVE-2026-1234", "bsc#1234567"}}
	return s
}

// hidden returns which of the elements are not inside of the window as a whole.
func hidden(page *browser.Tab, selector string) string {
	return browser.Eval[string](page, `[...document.querySelectorAll(`+"`"+selector+"`"+`)].filter(element => {
		const box = element.getBoundingClientRect();
		return box.left < 0 || box.right > document.documentElement.clientWidth + 1 || element.closest("dialog") && (box.top < 0 || box.bottom > innerHeight + 1);
	}).map(element => element.textContent).join(", ")`)
}

// What a person needs of an apply of ten pods is on the screen: title, buttons, and first what failed.
func TestPageAppliesManyPods(t *testing.T) {
	t.Parallel()
	onEachCockpit(t, func(t *testing.T, version string) {
		d := startDaemon(t, manyOffers())
		d.apply = func(agent.ApplyRequest) (all []status.Outcome, err error) {
			for n := range 10 {
				o := status.Outcome{PodManifest: fmt.Sprintf("pod%d.yaml", n), Change: "rebuild", Result: status.ResultApplied}
				if n == 9 {
					o.Result, o.Reason = status.ResultFailed, "it crashed"
				}
				all = append(all, o)
			}
			return all, nil
		}
		page := d.open(t, version, "en-US", 0)
		page.Await(story.PageState, "Updates are ready")
		page.Click("#apply-all")
		page.Await("dialog", "10 pods")
		page.Await("dialog", "important")
		page.Await("dialog", "fixes CVE-2026-1234, bsc#1234567")
		page.Picture("severity")
		assert.Empty(t, hidden(page, "dialog header, dialog footer button"))
		browser.Eval[string](page, `document.querySelector("dialog .pf-v6-c-modal-box__body").scrollTo(0, 9999); ""`)
		page.Click("dialog [type=submit]")
		page.Await("#dialog-problem", "9 applied, 1 failed: pod9.yaml")
		page.Picture("outcome")
		assert.Empty(t, hidden(page, "dialog header, dialog footer button, #dialog-problem li:first-child"))
		assert.Contains(t, page.Text("#dialog-problem li:first-child"), "pod9.yaml")
		page.Press(kb.Escape)
		page.AwaitNone("dialog")

		page.Click("#apply-all")
		page.Await("dialog", "10 pods")
		d.become(func(s *status.Status) {
			s.Images, s.PodManifests = slices.Clone(s.Images), slices.Clone(s.PodManifests)
			for n := range 10 {
				s.Images[n].Offered, s.Images[n].Change, s.PodManifests[n].Change = nil, "", ""
			}
		})
		page.Await("#dialog-problem", "The offer has changed since this dialog was opened") // another tab was faster
		page.Click("dialog [type=submit]")
		page.Await("dialog header", "There is nothing to apply any more")
		page.Press(kb.Escape)
		page.AwaitNone("dialog")

		d.become(func(s *status.Status) {
			s.State = status.StateFailed
			s.Reasons = []status.Reason{{Kind: status.KindNotUp, PodManifest: "pod12.yaml", Text: "pod12.yaml: it crashed"}}
		})
		page.Await(story.PageState, "pod12.yaml did not come up and was not rolled back")
		assert.Equal(t, "pod12.yaml", page.Attribute(".pod", "data-pod"), "what failed stands first")
		page.Click("#status [data-do=show]")
		assert.Equal(t, "pod12.yaml", browser.Eval[string](page, `document.activeElement.closest("[data-pod]").dataset.pod`))
		assert.Empty(t, page.Console())
	})
}

// A reason without a space hides no button, and the focus goes to the pod when an apply takes away the button that had it.
func TestPageKeepsButtonsAndFocus(t *testing.T) {
	t.Parallel()
	onEachCockpit(t, func(t *testing.T, version string) {
		s, long := podsOf(2), strings.Repeat("x", 200)
		s.PodManifests[1].Holds = []status.Hold{{Name: status.HoldRequested, Reason: long, By: status.ByPerson, Image: s.Images[1].Image}}
		s.PodManifests[1].Error = long
		later := time.Now().Add(time.Hour)
		s.StandingHolds = []status.StandingHold{{Repository: s.Images[1].Image, Name: status.HoldRequested, Reason: long, Until: &later, By: status.Actor{Kind: status.ByPerson, User: "alice"}}}
		d := startDaemon(t, s)
		applied := make(chan struct{})
		d.apply = func(agent.ApplyRequest) ([]status.Outcome, error) {
			close(applied)
			return []status.Outcome{{PodManifest: "pod0.yaml", Change: "rebuild", Result: status.ResultApplied}}, nil
		}
		page := d.open(t, version, "en-US", 0)
		page.Await("#holds", "alice")
		for _, width := range []int64{1280, 390} {
			page.Resize(width, 800)
			assert.Empty(t, hidden(page, "button, #holds td"), "%d", width)
		}
		page.Resize(1280, 800)

		browser.Eval[string](page, `document.querySelector("[data-pod='pod0.yaml'] [data-do=apply]").focus(); ""`)
		page.Press(kb.Enter)
		page.Await("dialog", "Apply updates of pod0.yaml?")
		browser.Eval[string](page, `document.querySelector("dialog [type=submit]").focus(); ""`)
		page.Press(kb.Enter)
		receive(t, page, applied)
		page.AwaitNone("dialog")
		d.become(func(s *status.Status) {
			s.Images, s.PodManifests = slices.Clone(s.Images), slices.Clone(s.PodManifests)
			s.Images[0].Offered, s.Images[0].Change, s.PodManifests[0].Change = nil, "", ""
		})
		page.AwaitNone("[data-pod='pod0.yaml'] [data-do=apply]")
		assert.Equal(t, "pod0.yaml", browser.Eval[string](page, `document.activeElement.closest("[data-pod]")?.dataset.pod ?? document.activeElement.tagName`))
		require.Empty(t, page.Console())
	})
}
