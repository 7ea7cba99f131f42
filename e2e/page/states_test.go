// SPDX-License-Identifier: Apache-2.0

package page

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp/kb"
	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/e2e/browser"
	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
	"github.com/kubic-project/image-update-agent/internal/face/api"
	"github.com/kubic-project/image-update-agent/internal/face/bus/bustest"
)

// daemon answers as a test says, on a real bus and a real status socket.
type daemon struct {
	*cockpitNode

	apply func(agent.ApplyRequest) ([]status.Outcome, error)
	acts  chan string  // what the others were asked for
	reads atomic.Int32 // of the status socket

	mu      sync.Mutex // guards the fields below
	status  status.Status
	changed chan struct{}
	hear    []func(status.Progress)
}

func startDaemon(t testing.TB, s status.Status) *daemon {
	t.Helper()
	d := &daemon{status: s, changed: make(chan struct{}), acts: make(chan string, 8), cockpitNode: &cockpitNode{
		bus: bustest.System(t, "../../packaging/dbus/org.opensuse.ImageUpdateAgent1.conf", "../../internal/face/api/testdata/polkit.conf"),
	}}
	d.Node = node.Start(t, node.Options{})
	d.Shell("mkdir -p " + d.Path("run/image-update-agent"))
	server, err := api.Listen(t.Context(), d.Path("run/image-update-agent/status.sock"), true, reader{d}, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context())) // it ends in the clean-up, which waits
	var ended sync.WaitGroup
	ended.Go(func() { assert.NoError(t, server.Serve()) })
	ended.Go(func() {
		api.NewBus(api.BusOptions{Address: d.bus.Address, Daemon: d, Log: slog.New(slog.DiscardHandler)}).Run(ctx)
	})
	t.Cleanup(func() { stop(); assert.NoError(t, server.Close()); ended.Wait() })
	node.Eventually(t, "the daemon is on the bus", node.Patience, func() error {
		d.mu.Lock()
		defer d.mu.Unlock()
		if len(d.hear) == 0 {
			return errors.New("it is not")
		}
		return nil
	})
	return d
}

// reader counts who reads the status from the socket.
type reader struct{ *daemon }

func (r reader) Status() status.Status { r.reads.Add(1); return r.daemon.Status() }

func (d *daemon) become(change func(*status.Status)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change(&d.status)
	close(d.changed)
	d.changed = make(chan struct{})
}

func (d *daemon) say(p status.Progress) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, hear := range d.hear {
		hear(p)
	}
}

func (d *daemon) Status() status.Status { d.mu.Lock(); defer d.mu.Unlock(); return d.status }

func (d *daemon) Changed() <-chan struct{} { d.mu.Lock(); defer d.mu.Unlock(); return d.changed }

func (d *daemon) Listen(f func(status.Progress)) func() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.hear = append(d.hear, f)
	return func() { d.mu.Lock(); defer d.mu.Unlock(); d.hear = nil }
}

func (d *daemon) Check(context.Context, func(status.Progress)) (status.Status, error) {
	return d.Status(), nil
}

// asked answers what the test waits for.
func (d *daemon) asked(format string, args ...any) (status.Status, error) {
	d.acts <- fmt.Sprintf(format, args...)
	return d.Status(), nil
}

func (d *daemon) ForgetCatalog(context.Context, func(status.Progress)) (status.Status, error) {
	return d.asked("forget the catalog")
}

func (d *daemon) ReleaseLock(context.Context, func(status.Progress)) (status.Status, error) {
	return d.asked("release the lock")
}

func (d *daemon) EnableLocalRegistry(_ context.Context, registry string, gate bool) (status.Status, error) {
	return d.asked("enable %s %t", registry, gate)
}

func (d *daemon) DisableLocalRegistry(_ context.Context, registry string) (status.Status, error) {
	s, _ := d.asked("disable %s", registry)
	return s, fmt.Errorf("%w: hosts.toml was edited", release.ErrHeld)
}

func (d *daemon) TryLock(context.Context, func(status.Progress)) (status.Status, error) {
	return d.Status(), nil
}

func (d *daemon) Apply(_ context.Context, r agent.ApplyRequest, _ func(status.Progress)) ([]status.Outcome, error) {
	return d.apply(r)
}

func (d *daemon) Rollback(context.Context, plan.Which, func(status.Progress)) ([]status.Outcome, error) {
	return nil, agent.ErrEnded
}

func (d *daemon) Hold(context.Context, []string, bool, string, time.Time) ([]string, error) {
	return nil, agent.ErrEnded
}

func (d *daemon) Resume(_ context.Context, names []string, all bool) ([]string, error) {
	_, err := d.asked("resume %q %t", names, all)
	return []string{"*"}, err
}

// podsOf is a checked node with so many pods; the first is offered an update.
func podsOf(count int) status.Status {
	at := time.Now().UTC().Add(-time.Hour)
	next := at.Add(12 * time.Hour)
	s := status.Status{
		SchemaVersion: 1, Version: "0.1.0", State: status.StateStaged, Since: at, Written: at, LastCheck: &at, NextCheck: &next,
		Reasons: []status.Reason{{Kind: status.KindApproval, Text: "text", PodManifest: "pod0.yaml"}}, Sources: []status.SourceStatus{},
		Updates: []status.AnnouncedUpdate{{Image: "registry.example/a/image0", Change: "rebuild"}}, NotAllowed: []status.NotAllowed{},
		Failures: []status.Failure{}, StandingHolds: []status.StandingHold{}, History: []status.HistoryEntry{},
	}
	for n := range count {
		file, image := fmt.Sprintf("pod%d.yaml", n), fmt.Sprintf("registry.example/a/image%d", n)
		s.PodManifests = append(s.PodManifests, status.PodStatus{
			PodManifest: file, Pod: fmt.Sprintf("pod%d", n), Edits: []status.Edit{}, Untouched: []status.Untouched{}, Holds: []status.Hold{},
		})
		s.Images = append(s.Images, status.ImageStatus{
			Image: image, Container: "web", PodManifest: file, Follow: "4.0.0", Host: "registry.example", Holds: []status.Hold{},
			Running: &status.Named{Tag: "4.0.0-rev1-build1.1", Digest: digest.FromString("1")},
		})
	}
	offer(&s, "4.0.0-rev1-build1.2")
	return s
}

// offer offers the first pod a release.
func offer(s *status.Status, tag string) {
	s.Images = slices.Clone(s.Images)
	s.Images[0].Offered, s.Images[0].Change, s.Images[0].Staged = &status.Named{Tag: tag, Digest: digest.FromString(tag)}, "rebuild", true
	s.PodManifests = slices.Clone(s.PodManifests)
	s.PodManifests[0].Change = "rebuild"
	s.PodManifests[0].Edits = []status.Edit{{Container: "web", Field: status.EditImage, From: "4.0.0-rev1-build1.1", To: tag}}
}

// states are the situations of a node that are rare or short.
func states() map[string]func(*status.Status) {
	at := time.Now().UTC()
	later := at.Add(time.Hour)
	hold := status.Hold{Name: status.HoldDistribution, Reason: "rke2 writes this pod manifest itself"}.Explained()
	return map[string]func(*status.Status){
		"Updates are ready": func(*status.Status) {},
		"Not checked yet: the first check is at": func(s *status.Status) {
			s.State, s.LastCheck, s.Reasons = status.StateUnchecked, nil, []status.Reason{{Kind: status.KindUnasked, Text: "not asked"}}
		},
		"Updates are held": func(s *status.Status) {
			s.State, s.PodManifests[0].Holds = status.StateHeld, []status.Hold{hold}
			s.StandingHolds = []status.StandingHold{{Repository: "*", Name: "hold", Reason: "until the demo", Until: &later, By: status.Actor{Kind: "person", User: "alice"}}}
			s.Auto = &status.AutoStatus{ChangesAt: &later}
		},
		"A registry does not answer": func(s *status.Status) {
			s.State = status.StateStale
			for n := range 3 {
				s.Sources = append(s.Sources, status.SourceStatus{
					Repository: s.Images[n].Image, Host: "mirror.example", Mirror: true, LastSuccess: &at, Failures: 3, RetryAt: &later,
					Reason: "connection refused", Cause: "refused",
				})
			}
		},
		"An update is being applied": func(s *status.Status) {
			s.State, s.Activity = status.StateApplying, status.ActivityApplying
			s.Progress = &status.Progress{
				Reference: "pod0", PodManifest: "pod0.yaml", Phase: status.PhaseWaiting, Number: 2, Count: 3, Since: at, Deadline: later,
				Reason: "web: does not run: ImagePullBackOff",
			}
			s.Pulls = []status.Progress{{Reference: "registry.example/a/image1", Phase: status.PhaseDownloading, Done: 1 << 20, Total: 8 << 20}}
		},
		"pod0.yaml was rolled back": func(s *status.Status) {
			s.State = status.StateFailed
			s.Reasons = []status.Reason{{Kind: status.KindRolledBack, PodManifest: "pod0.yaml", Text: "pod0.yaml: 4.0.0-rev1-build1.2 was rolled back: it crashed"}}
			s.Images[0].Offered, s.Images[0].Change, s.Images[0].Staged = nil, "", false
			s.PodManifests[0].RolledBack = &status.RolledBack{
				At: at, Denied: []string{"4.0.0-rev1-build1.2"}, Runs: []string{"4.0.0-rev1-build1.1"}, Reason: "it crashed",
				Retries: []status.Retry{{Image: s.Images[0].Image, Tag: "4.0.0-rev1-build1.2", Digest: digest.FromString("4.0.0-rev1-build1.2"), Reason: "it crashed"}},
			}
		},
		"Up to date": func(s *status.Status) {
			s.State, s.Reasons, s.Updates = status.StateCurrent, nil, nil
			s.Images[0].Offered, s.Images[0].Change = nil, ""
			s.Images[1].Image, s.Images[1].Notes = "registry.example/عربي", []string{"ملاحظة من السجل (v1.2)"}
		},
	}
}

// Each state in light and dark, on a telephone and enlarged to 200 %, has no fault that axe finds, and is not wider than
// the window.
func TestPageStates(t *testing.T) {
	t.Parallel()
	onEachCockpit(t, func(t *testing.T, version string) {
		d := startDaemon(t, podsOf(3))
		page, code := d.open(t, version, "en-US", 0), axe(t, d.Node)
		for headline, state := range states() {
			d.become(func(s *status.Status) { *s = podsOf(3); state(s) })
			page.Await(story.PageState, headline)
			looksRight(t, page, code, headline)
			isolates(t, page)
		}
		d.become(func(s *status.Status) { *s = fullStatus() })
		page.Await("#pods", "container")
		looksRight(t, page, code, "every field")
		readsFromTheRight(t, page, code)
		for _, button := range []string{
			"#hold-all", "#release-lock", "#forget-catalog", "[data-do=enable]", "[data-do=disable]", ".pod [data-do=apply]", ".pod [data-do=retry]",
			".pod [data-do=rollback]",
		} {
			if browser.Eval[int](page, fmt.Sprintf("document.querySelectorAll(%q).length", button)) == 0 {
				continue
			}
			browser.Eval[string](page, fmt.Sprintf("document.querySelector(%q).click(); ''", button))
			looksRight(t, page, code, button)
			page.Press(kb.Escape)
			page.AwaitNone("dialog")
		}
		assert.Empty(t, page.Console())
	})
}

// readsFromTheRight asserts the layout for a language that is written from the right. What programs write stays as it is.
func readsFromTheRight(t *testing.T, page *browser.Tab, code string) {
	t.Helper()
	turn := func(direction string) {
		browser.Eval[string](page, fmt.Sprintf("document.documentElement.dir = %q", direction))
	}
	turn("rtl")
	defer turn("ltr")
	looksRight(t, page, code, "from the right")
	assert.True(t, browser.Eval[bool](page, `(([first, last]) => first.x > last.x)(
		["first-child", "last-child"].map(at => document.querySelector("#pods th:" + at).getBoundingClientRect()))`), "columns begin at the right")
	assert.Empty(t, browser.Eval[[]string](page, `[...document.querySelectorAll(".digest, .release > summary, .edits ins")]
		.filter(one => getComputedStyle(one).direction !== "ltr").map(one => one.outerHTML)`))
}

// isolates asserts that a text from the right does not turn the text around it.
func isolates(t *testing.T, page *browser.Tab) {
	t.Helper()
	assert.Empty(t, browser.Eval[[]string](page, `[...document.querySelectorAll("body *")]
		.filter(one => [...one.childNodes].some(node => node.nodeType === Node.TEXT_NODE && /[\u0590-\u06ff]/.test(node.data)))
		.filter(one => { const is = getComputedStyle(one); return is.display.startsWith("inline") && is.unicodeBidi !== "isolate"; })
		.map(one => one.outerHTML)`))
}

func looksRight(t *testing.T, page *browser.Tab, code, what string) {
	t.Helper()
	browser.Eval[string](page, `document.querySelectorAll("details").forEach(one => { one.open = true; }); ''`)
	page.Prefer("dark")
	readable(t, page, code, what+" dark") // all else is the same as in light
	page.Prefer("light")
	accessible(t, page, code, what+" light")
	for _, width := range []int64{390, 600} {
		page.Resize(width, 844)
		assert.False(t, wide(page), "%s at %d px", what, width)
	}
	page.Resize(1200, 900)
}

// Each field of the status changes what the page shows, but those that test/fields.js leaves out, with a reason.
func TestPageShowsEveryField(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, podsOf(1))
	page := d.open(t, newestCockpit(), "en-US", 0)
	page.Await(story.PageState, "Updates are ready")
	full, err := json.Marshal(fullStatus())
	require.NoError(t, err)
	found := browser.Eval[struct {
		Fields         int
		Missing, Stale []string
	}](page, fmt.Sprintf(`import("./test/fields.js").then(tests => tests.withoutPlace(%s))`, full))
	assert.Greater(t, found.Fields, 250)
	assert.Empty(t, found.Missing, "show it, or leave it out in cockpit/test/fields.js with a reason")
	assert.Empty(t, found.Stale, "the status has no such field")
}

// The page approves what it has shown, and stays with what a person has typed until the daemon has done it.
func TestPageDialogs(t *testing.T) {
	t.Parallel()
	onEachCockpit(t, func(t *testing.T, version string) {
		d := startDaemon(t, podsOf(3))
		asked, answer := make(chan agent.ApplyRequest, 1), make(chan error, 1)
		d.apply = func(r agent.ApplyRequest) ([]status.Outcome, error) {
			asked <- r
			return []status.Outcome{
				{PodManifest: "pod0.yaml", Change: "rebuild", Result: status.ResultFailed, Reason: "it crashed"},
				{PodManifest: "pod1.yaml", Change: "rebuild", Result: status.ResultApplied},
			}, <-answer
		}
		page := d.open(t, version, "en-US", 0)
		const apply, submit = ".pod[data-pod='pod0.yaml'] [data-do=apply]", "dialog [type=submit]"
		page.Await(story.PageState, "Updates are ready")

		page.Click(apply)
		page.Await("dialog", "4.0.0-rev1-build1.1 → 4.0.0-rev1-build1.2")
		d.become(func(s *status.Status) { offer(s, "4.0.0-rev1-build1.3") })
		page.Await("#dialog-problem", "The offer has changed since this dialog was opened")
		assert.NotContains(t, page.Text("dialog .moves"), "build1.3", "what is read does not change under the reader")
		page.Click(submit)
		page.Await("dialog", "4.0.0-rev1-build1.1 → 4.0.0-rev1-build1.3")
		page.Click(submit)
		assert.Equal(t, []plan.Shown{{Image: "registry.example/a/image0", Digest: digest.FromString("4.0.0-rev1-build1.3")}}, receive(t, page, asked).Expect)
		page.Await("dialog .story", "The daemon begins")
		d.become(func(s *status.Status) { s.State, s.Activity = status.StateApplying, status.ActivityApplying })
		page.Await(story.PageState, "An update is being applied")
		d.say(status.Progress{
			Reference: "pod0", PodManifest: "pod0.yaml", Phase: status.PhaseWaiting, Number: 1, Count: 2, Since: time.Now(),
			Deadline: time.Now().Add(time.Minute), Reason: "web: ImagePullBackOff",
		})
		for _, text := range []string{"Step 2 of 3", "pod 1 of 2", "rolled back at", "ImagePullBackOff"} {
			page.Await("dialog .story", text)
		}
		page.Await(".pod[data-pod='pod0.yaml']", "ImagePullBackOff")
		d.become(func(s *status.Status) { s.State, s.Activity = status.StateStaged, status.ActivityNone })
		page.Await(story.PageState, "Updates are ready")
		answer <- &plan.MovedError{}
		page.Await("#dialog-problem", "The offer has changed")
		page.Click(submit)
		page.Click(submit)
		receive(t, page, asked)
		answer <- nil
		page.Await("#dialog-problem", "It failed")
		page.Await("#dialog-problem", "it crashed")
		page.Click("dialog [data-do=dismiss]")
		assert.Equal(t, "apply", browser.Eval[string](page, "document.activeElement.dataset.do"), "the focus returns")

		page.Click("#hold-all")
		page.Type("#hold-reason", strings.Repeat("ä", 101))
		page.Click(submit)
		page.Await("#dialog-problem", "The reason has 202 bytes")
		page.Type("#hold-reason", kb.Backspace)
		page.Click(submit)
		page.Await("#dialog-problem", "It failed")
		assert.Equal(t, strings.Repeat("ä", 100), browser.Eval[string](page, `document.querySelector("#hold-reason").value`))
		page.Press(kb.Escape)
		page.AwaitNone("dialog")
		page.Await("#said", "It failed. ")
		assert.Empty(t, page.Console())
	})
}

// receive is what the page has asked for.
func receive[T any](t *testing.T, page *browser.Tab, from chan T) (v T) {
	t.Helper()
	select {
	case v = <-from:
	case <-time.After(browser.Patience):
		require.Fail(t, "nothing was asked for", page.Text("body"))
	}
	return v
}

// The page reads the status when it has changed, once, and never while nobody sees it or while something is pulled.
func TestPageReadsWhatHasChanged(t *testing.T) {
	t.Parallel()
	onEachCockpit(t, func(t *testing.T, version string) {
		d := startDaemon(t, podsOf(3))
		page := d.open(t, version, "en-US", 0)
		page.Await(story.PageState, "Updates are ready")
		node.Eventually(t, "the page hears of progress", browser.Patience, func() error { // it shows the status before
			d.say(status.Progress{Reference: "first-image", Phase: status.PhaseResolving})
			if shown := page.Text("#work"); !strings.Contains(shown, "first-image") {
				return errors.New(shown)
			}
			return nil
		})
		before := d.reads.Load()
		for n := range 50 {
			d.say(status.Progress{Reference: "image", Phase: status.PhaseDownloading, Done: int64(n), Total: 49})
		}
		d.say(status.Progress{Reference: "another-image", Phase: status.PhaseResolving})
		page.Await("#work", "another-image")
		assert.Equal(t, before, d.reads.Load(), "a pull is shown from its signals")

		browser.Eval[string](page, `{
			const { control } = cockpit.transport;
			cockpit.transport.control = (...args) => {
				window.mark = args[1]?.page_status?.type ?? window.mark;
				return control.apply(cockpit.transport, args);
			};
			""
		}`)
		hide(page, true)
		for _, tag := range []string{"4.0.0-rev1-build1.3", "4.0.0-rev1-build1.4"} {
			d.become(func(s *status.Status) { offer(s, tag) })
		}
		d.become(func(s *status.Status) { s.State, s.Reason = status.StateStale, "stale" })
		node.Eventually(t, "the hidden page hears of the last one", browser.Patience, func() error {
			if mark := browser.Eval[string](page, `window.mark ?? ""`); mark != "warning" {
				return errors.New(mark)
			}
			return nil
		})
		hide(page, false)
		page.Await(story.PageState, "A registry does not answer")
		page.Await("#pods", "4.0.0-rev1-build1.4")
		assert.LessOrEqual(t, d.reads.Load(), before+2, "a hidden page reads nothing; shown again, it reads once, and once for a late signal")
		assert.Empty(t, page.Console())
	})
}

// hide has Cockpit take the page for one that nobody sees.
func hide(page *browser.Tab, hidden bool) {
	browser.Eval[string](page, fmt.Sprintf(`Object.defineProperty(document, "hidden", { configurable: true, get: () => %t });
		document.dispatchEvent(new Event("visibilitychange")); ''`, hidden))
}

// With many pods the page shows news first, folds what has none, and finds the rest.
func TestPageWithManyPods(t *testing.T) {
	t.Parallel()
	onEachCockpit(t, func(t *testing.T, version string) {
		d := startDaemon(t, podsOf(30))
		page := d.open(t, version, "en-US", 0)
		page.Await(story.PageState, "Updates are ready")
		rows := func() int {
			return browser.Eval[int](page, "document.querySelectorAll('.pod tr:not(.pod-row)').length")
		}
		assert.Equal(t, 1, rows(), "only the pod with an update is unfolded")
		page.Click(".pod[data-pod='pod7.yaml'] [data-do=fold]")
		page.Await(".pod[data-pod='pod7.yaml']", "registry.example/a/image7")
		page.Type("#search", "image12")
		page.Await("#pods [role=status]", "1 of 30 pods")
		page.Await(".pod", "pod12.yaml")
		page.Type("#search", strings.Repeat(kb.Backspace, 7))
		page.Click("#only-updates")
		page.Await("#pods [role=status]", "1 of 30 pods")
		page.Await(".pod", "pod0.yaml")
		assert.Equal(t, 1, browser.Eval[int](page, "document.querySelectorAll('.pf-m-primary').length"), "one primary action")
		assert.Empty(t, page.Console())
	})
}

// A status that the page cannot draw is a page that says so, and not an empty one.
func TestPageSaysItsFaults(t *testing.T) {
	t.Parallel()
	onEachCockpit(t, func(t *testing.T, version string) {
		d := startDaemon(t, podsOf(1))
		page := d.open(t, version, "en-US", 0)
		page.Await(story.PageState, "Updates are ready")
		d.become(func(s *status.Status) { s.Images = nil })
		page.Await("h1", "This page has a fault")
		page.Await("main", "The agent is not affected")
		node.Eventually(t, "the console", browser.Patience, func() error { // the browser tells of it beside
			if len(page.Console()) == 0 {
				return errors.New("nothing")
			}
			return nil
		})
	})
}
