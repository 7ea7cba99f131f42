// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"fmt"

	"github.com/kubic-project/image-update-agent/manifests"
)

// rendered is a rendered pod manifest.
type rendered struct {
	wanted  []byte
	left    []Left
	waiting bool // it is another pod than the one on disk
}

// tagAt is the tag that an image is to have; empty: the one that is written.
type tagAt struct{ path, tag string }

// renderInput is what a rendered pod manifest is to have.
type renderInput struct {
	overrides manifests.Overrides
	tags      []tagAt
	pins      []manifests.Pinned // put in the place of what was rendered
	text      string             // the whole of it; empty: it is rendered
}

// render makes the wanted pod manifest and compares it with the one on disk.
func render(source []byte, disk *PodFile, w renderInput) (rendered, error) {
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
		return rendered{}, fmt.Errorf("render: %w", err)
	}
	if w.text != "" {
		out.Data = []byte(w.text)
	}
	d := rendered{wanted: out.Data, left: left(out.Left)}
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
