// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"github.com/kubic-project/image-update-agent/manifests"
)

// memory keeps what pure functions gave, so that a node on which nothing moves
// is not worked out anew in each cycle: half of a poll's memory was YAML. A key
// is all that a result depends on, to the byte. So nothing has to be told of a
// change, and a plan is the same with a memory as without. What it gives is
// shared: nobody changes it. The zero memory keeps nothing; copies are one.
type memory struct {
	pods         memo[string, manifests.Pod] // by the file's bytes
	renders      memo[drawing, drawn]
	references   memo[string, Reference] // by their text
	repositories memo[string, string]    // normalised, by their text
	rules        memo[string, Rule]      // by repository
}

// turn begins a cycle. What the last one did not ask for is forgotten, and all
// rules are: the policy may be another.
func (m *memory) turn() {
	m.pods.turn()
	m.renders.turn()
	m.references.turn()
	m.repositories.turn()
	m.rules = memo[string, Rule]{}
	m.rules.turn()
}

// memo has two generations: it holds what this cycle and the last one asked for.
type memo[K comparable, V any] struct{ now, before map[K]kept[V] }

type kept[V any] struct {
	value V
	err   error
}

func (m *memo[K, V]) turn() { m.now, m.before = map[K]kept[V]{}, m.now }

// get is what work gives, or gave for the same key.
func (m *memo[K, V]) get(key K, work func() (V, error)) (V, error) {
	k, ok := m.now[key]
	if !ok {
		k, ok = m.before[key]
	}
	if !ok {
		k.value, k.err = work()
	}
	if m.now != nil {
		m.now[key] = k
	}
	return k.value, k.err
}

// parse is manifests.Parse.
func (m *memory) parse(data []byte) (manifests.Pod, error) {
	return m.pods.get(string(data), func() (manifests.Pod, error) { return manifests.Parse(data) })
}

// reference is ParseReference.
func (m *memory) reference(text string) (Reference, error) {
	return m.references.get(text, func() (Reference, error) { return ParseReference(text) })
}

// repository is NormalizeRepository.
func (m *memory) repository(name string) (string, error) {
	return m.repositories.get(name, func() (string, error) { return NormalizeRepository(name) })
}

// drawing is all that a rendered pod manifest depends on, and what it is
// compared with.
type drawing struct {
	source, disk string
	settings     string // pull policy, rewrites, tags, digests
}

// drawn is a rendered pod manifest.
type drawn struct {
	wanted  []byte
	left    []Left
	waiting bool // it is another pod than the one on disk
}

// tagAt is the tag that an image is to have; empty: the one that is written.
type tagAt struct{ path, tag string }

// wish is what a rendered pod manifest is to have.
type wish struct {
	overrides manifests.Overrides
	tags      []tagAt
	pins      []manifests.Pinned // put in the place of what was rendered
	text      string             // the whole of it; empty: it is rendered
}

// render makes the wanted pod manifest and compares it with the one on disk.
func (m *memory) render(source []byte, disk *PodFile, w wish) (drawn, error) {
	var settings strings.Builder
	fmt.Fprintf(&settings, "%q %q %q %q", w.overrides.PullPolicy, w.overrides.Rewrites, w.pins, w.text)
	for _, t := range w.tags {
		settings.WriteString(" " + strconv.Quote(t.path) + "=" + strconv.Quote(t.tag))
	}
	key := drawing{source: string(source), settings: settings.String()}
	if disk != nil {
		key.disk = string(disk.Data) // an empty one is no pod manifest, and does not come here
	}
	return m.renders.get(key, func() (drawn, error) { return draw(source, disk, w) })
}

func draw(source []byte, disk *PodFile, w wish) (drawn, error) {
	at := make(map[string]string, len(w.tags))
	for _, t := range w.tags {
		at[t.path] = t.tag
	}
	o := w.overrides
	o.Tag = func(_ string, img manifests.Image) (string, bool) {
		t := at[img.Path]
		return t, t != ""
	}
	out, err := manifests.Render(source, o)
	if err == nil && len(w.pins) > 0 {
		out.Data, err = manifests.Pin(out.Data, w.pins)
	}
	if err != nil {
		return drawn{}, fmt.Errorf("render: %w", err)
	}
	if w.text != "" {
		out.Data = []byte(w.text)
	}
	d := drawn{wanted: out.Data, left: left(out.Left)}
	if disk == nil || bytes.Equal(disk.Data, out.Data) {
		return d, nil
	}
	equal, err := manifests.Equal(disk.Data, out.Data)
	if err != nil {
		return d, fmt.Errorf("compare with the pod manifest: %w", err)
	}
	d.waiting = !equal
	return d, nil
}
