// SPDX-License-Identifier: Apache-2.0

package page

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/e2e/browser"
	"github.com/kubic-project/image-update-agent/e2e/story"
)

// counted has a page count what goes over Cockpit's bridge; Cockpit's own messages, on the control channel, do not count.
const counted = `window.traffic = { requests: 0, bytes: 0 };
	cockpit.transport.filter((message, channel, control) => {
		if (control?.command === "open") window.traffic.requests += 1;
		if (channel) window.traffic.bytes += message.length;
		return true;
	}, true);
	cockpit.transport.filter((message, channel) => { if (channel) window.traffic.bytes += message.length; return true; }); ""`

type traffic struct{ Requests, Bytes int }

// What a page costs the bridge in a minute: while nothing happens, while it is hidden, and while an image is pulled, with
// four reports a second.
func BenchmarkPageTraffic(b *testing.B) {
	for version := range cockpits {
		b.Run(version, func(b *testing.B) {
			const reports = 240 // of a minute
			tick := time.NewTicker(time.Minute / reports)
			defer tick.Stop()
			d := startDaemon(b, podsOf(3))
			page := d.open(b, version, "en-US", 0)
			page.Await(story.PageState, "Updates are ready")
			browser.Eval[string](page, counted)
			for b.Loop() {
				for _, what := range []string{"idle", "hidden", "pull"} {
					hide(page, what == "hidden")
					before, reads := browser.Eval[traffic](page, "window.traffic"), d.reads.Load()
					for n := range reports {
						<-tick.C
						if what == "pull" {
							d.say(status.Progress{Reference: "image", Phase: status.PhaseDownloading, Done: int64(n), Total: reports})
						}
					}
					after := browser.Eval[traffic](page, "window.traffic")
					b.ReportMetric(float64(after.Requests-before.Requests), what+"-requests")
					b.ReportMetric(float64(after.Bytes-before.Bytes), what+"-bytes")
					b.ReportMetric(float64(d.reads.Load()-reads), what+"-statuses")
				}
			}
		})
	}
}

// How long the browser takes to draw 50 pods with 500 images, with their layout.
func BenchmarkPageDraws(b *testing.B) {
	d := startDaemon(b, podsOf(1))
	page := d.open(b, "337", "en-US", 0)
	page.Await(story.PageState, "Updates are ready")
	s := podsOf(50)
	for n := range 50 {
		for c := range 9 {
			image := s.Images[n]
			image.Container, image.Offered, image.Change = fmt.Sprintf("c%d", c), nil, ""
			s.Images = append(s.Images, image)
		}
	}
	text, err := json.Marshal(s)
	require.NoError(b, err)
	const draws = `Promise.all(["./vendor/preact.js", "./view.js", "./test/fields.js"].map(one => import(one))).then(([{ h, render }, { Page }, { pageOf }]) => {
		const status = %s, open = new Set(status.podManifests.map(pod => pod.podManifest)), into = document.body.appendChild(document.createElement("div"));
		const began = performance.now();
		render(h(Page, pageOf(status, { open })), into);
		into.getBoundingClientRect();
		const took = performance.now() - began, rows = into.querySelectorAll(".pod tr:not(.pod-row)").length;
		into.remove();
		return rows === 500 ? took : -rows;
	})`
	least := 0.0
	for b.Loop() {
		took := browser.Eval[float64](page, fmt.Sprintf(draws, text))
		require.Positive(b, took)
		if least == 0 || took < least {
			least = took
		}
	}
	b.ReportMetric(least, "ms-least")
}
