// SPDX-License-Identifier: Apache-2.0

package browser

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/kubic-project/image-update-agent/e2e/node"
)

// Tab is a page that is shown, in a browser of its own.
type Tab struct {
	tb  node.TB
	ctx context.Context

	mu      sync.Mutex
	console []string
}

// chromium starts the browser in its root, with a profile in memory. $0 is the root.
const chromium = `set -eu
mount -t proc browser "$0/proc"
mount --rbind /dev "$0/dev"
mount -t tmpfs browser "$0/tmp"
exec chroot "$0" "$@"`

// Open starts a browser whose person reads a language, and shows a page. It ends with the test. part is the directory
// of the part browser of tools/setup.
func Open(tb node.TB, part, language, address string) *Tab {
	tb.Helper()
	inRoot := func(c *exec.Cmd) {
		argv := []string{"unshare", "--mount", "--propagation", "private", "sh", "-c", chromium, filepath.Join(part, "root")}
		c.Path, c.Args = "/usr/bin/unshare", append(argv, c.Args...)
		c.Args[len(argv)] = "/usr/lib/chromium/chromium"
	}
	ctx, cancel := chromedp.NewExecAllocator(tb.Context(), append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath("/usr/bin/unshare"), chromedp.ModifyCmdFunc(inRoot), chromedp.UserDataDir("/tmp/profile"),
		chromedp.NoSandbox, chromedp.Flag("disable-dev-shm-usage", true), chromedp.Flag("lang", language),
		chromedp.Flag("accept-lang", language))...)
	tb.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	tb.Cleanup(cancel)
	t := &Tab{tb: tb, ctx: ctx}
	// The browser ends with the context of its first action, so that has no deadline of its own.
	if err := chromedp.Do(ctx, chromedp.EmulateViewport(1200, 900)); err != nil {
		tb.Fatalf("browser: %v", err)
	}
	t.listen()
	tb.Cleanup(t.show)
	t.Prefer("light")
	t.do(chromedp.Navigate(address))
	return t
}

// listen keeps what the page writes to the console, which nothing reads while it is shown.
func (t *Tab) listen() {
	messages := chromedp.Console(t.ctx)
	go func() {
		for m, err := range messages {
			if err != nil {
				return
			}
			t.mu.Lock()
			t.console = append(t.console, m.String())
			t.mu.Unlock()
		}
	}()
}

// Console is what the page has written there so far.
func (t *Tab) Console() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]string{}, t.console...)
}

func (t *Tab) do(steps ...chromedp.Action[chromedp.Void]) {
	t.tb.Helper()
	ctx, cancel := context.WithTimeout(t.ctx, Patience)
	defer cancel()
	if err := chromedp.Do(ctx, steps...); err != nil {
		t.tb.Fatalf("browser: %v", err)
	}
}

// Go shows another page.
func (t *Tab) Go(address string) { t.tb.Helper(); t.do(chromedp.Navigate(address)) }

// press finds where to press an element: null until it can be pressed, lies above all others and has stood still for
// two frames. It notes whether the click reaches the element.
const press = `(async selector => {
	const frame = () => new Promise(requestAnimationFrame);
	const center = ({ x, y, width, height }) => [x + width / 2, y + height / 2];
	const element = document.querySelector(selector);
	if (!element?.checkVisibility({ visibilityProperty: true }))
		return null;
	element.scrollIntoView({ block: "nearest", inline: "nearest", behavior: "instant" });
	const before = String(element.getClientRects()[0] && center(element.getClientRects()[0]));
	await frame();
	await frame();
	const place = element.getClientRects()[0] && center(element.getClientRects()[0]);
	if (!place || String(place) !== before || !element.contains(document.elementFromPoint(...place)))
		return null;
	window.wasPressed = false;
	element.addEventListener("click", () => { window.wasPressed = true; }, { once: true, capture: true });
	return place;
})(%s)`

// Click clicks an element that a person sees, as soon as it can be pressed. The mouse presses a place and not an
// element: where the element has moved away meanwhile, Click presses again.
func (t *Tab) Click(selector string) {
	t.tb.Helper()
	find := fmt.Sprintf(press, quote(selector+":not([aria-disabled=true])"))
	node.Eventually(t.tb, selector+" can be pressed", Patience, func() error {
		place, err := eval[[]float64](t, find)
		if err != nil {
			return err
		}
		if len(place) != 2 {
			return errors.New("it is absent, disabled, hidden or moving")
		}
		t.do(chromedp.MouseClickXY(place[0], place[1]))
		if wasPressed, err := eval[bool](t, "window.wasPressed !== false"); err == nil && !wasPressed {
			return errors.New("it moved away from the mouse")
		}
		return nil // an error: the click has loaded another page
	})
}

// Type types into an element.
func (t *Tab) Type(selector, text string) { t.tb.Helper(); t.do(chromedp.SendKeys(selector, text)) }

// Press presses keys, as in package kb of chromedp.
func (t *Tab) Press(keys string) { t.tb.Helper(); t.do(chromedp.KeyEvent(keys)) }

// Resize changes the size of the window, in CSS pixels.
func (t *Tab) Resize(width, height int64) {
	t.tb.Helper()
	t.do(chromedp.EmulateViewport(width, height))
}

// Prefer has the browser prefer "dark" or "light", which Cockpit follows. Nothing moves, so that pictures are the same.
func (t *Tab) Prefer(scheme string) {
	t.tb.Helper()
	t.do(chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		_, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{
				{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"},
			},
		})
		return err
	}))
}

// textOf is an expression for the text of all elements, a line each.
func textOf(selector string) string {
	return fmt.Sprintf("[...document.querySelectorAll(%s)].map(e => e.textContent).join('\\n')", quote(selector))
}

// Attribute is an attribute of an element; empty: it has none.
func (t *Tab) Attribute(selector, name string) string {
	t.tb.Helper()
	return Eval[string](t, fmt.Sprintf("document.querySelector(%s).getAttribute(%s) ?? ''", quote(selector), quote(name)))
}

// Text is the text of all elements, a line each.
func (t *Tab) Text(selector string) string { t.tb.Helper(); return Eval[string](t, textOf(selector)) }

// Await waits for a text in an element.
func (t *Tab) Await(selector, text string) {
	t.tb.Helper()
	t.until(selector, fmt.Sprintf("has %q", text), func(all string) bool { return strings.Contains(all, text) })
}

// AwaitNone waits until there is no such element.
func (t *Tab) AwaitNone(selector string) {
	t.tb.Helper()
	node.Eventually(t.tb, selector+" goes", Patience, func() error {
		if n, err := eval[int](t, fmt.Sprintf("document.querySelectorAll(%s).length", quote(selector))); err != nil || n > 0 {
			return fmt.Errorf("%d of them: %w", n, err)
		}
		return nil
	})
}

func (t *Tab) until(selector, what string, isIt func(all string) bool) {
	t.tb.Helper()
	node.Eventually(t.tb, selector+" "+what, Patience, func() error {
		all, err := eval[string](t, textOf(selector))
		if err == nil && !isIt(all) {
			err = fmt.Errorf("it has %q", all)
		}
		return err
	})
}

// Eval evaluates JavaScript, and waits where it is a promise; again where the page was loaded anew meanwhile.
func Eval[T any](t *Tab, text string) (v T) {
	t.tb.Helper()
	node.Eventually(t.tb, text, Patience, func() (err error) {
		v, err = eval[T](t, text)
		return err
	})
	return v
}

func eval[T any](t *Tab, text string) (T, error) {
	ctx, cancel := context.WithTimeout(t.ctx, Patience)
	defer cancel()
	return chromedp.Run(ctx, chromedp.Evaluate[T](text, chromedp.EvalAwaitPromise))
}

func quote(text string) string {
	quoted, _ := json.Marshal(text) // of a string, which has no errors
	return string(quoted)
}

// show shows what the page had when the test failed.
func (t *Tab) show() {
	if t.tb.Failed() {
		text, _ := eval[string](t, "document.body.innerText")
		t.tb.Logf("page: %s\nconsole: %q", text, t.Console())
	}
}

// Show unfolds all elements with a tag.
func (t *Tab) Show(tag string) {
	t.tb.Helper()
	Eval[string](t, fmt.Sprintf("document.querySelectorAll(%s).forEach(one => { one.open = true; }); ''", quote(tag)))
}
