// SPDX-License-Identifier: Apache-2.0

package images

import (
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/stretchr/testify/assert"

	"github.com/kubic-project/image-update-agent/agent/release"
)

// A full disk is the node's only if containerd says so.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	full := errors.New("write /var/lib/containerd/x: no space left on device")
	for name, is := range map[string]struct {
		err  error
		want bool
	}{
		"containerd, in a blob":      {fmt.Errorf("failed to send write: %w", full), true},
		"containerd, in a snapshot":  {fmt.Errorf("unpack: failed to extract layer: %w: %w", full, errdefs.ErrUnknown), true},
		"a quota":                    {errors.New("write /x: disk quota exceeded"), true},
		"known already":              {fmt.Errorf("x: %w", release.ErrNoSpace), true},
		"the registry's, in an HTTP": {fmt.Errorf("failed to copy: %w", fromRegistry(full)), false},
		"the registry's 404":         {fromRegistry(fmt.Errorf("%w: %w", errdefs.ErrNotFound, full)), false},
		"something else":             {io.ErrUnexpectedEOF, false},
	} {
		got := withKind(is.err)
		assert.Equal(t, is.want, errors.Is(got, release.ErrNoSpace), name)
		assert.ErrorIs(t, got, is.err, name)
	}
	assert.NoError(t, withKind(nil))
}

func TestTransientErrors(t *testing.T) {
	t.Parallel()
	exists := errors.New("failed to rename: rename snapshots/new-1 snapshots/74: file exists")
	for name, is := range map[string]struct {
		err  error
		want bool
	}{
		"none":                   {nil, false},
		"gone":                   {fmt.Errorf("%w: %w", errConnectionLost, io.EOF), true},
		"left by a kill":         {fmt.Errorf("failed to prepare: %w", exists), true},
		"the registry's message": {fromRegistry(exists), false},
		"a full disk":            {release.ErrNoSpace, false},
	} {
		assert.Equal(t, is.want, isTransient(is.err), name)
	}
}
