// SPDX-License-Identifier: Apache-2.0

package release_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/tags"
)

func TestQuestionString(t *testing.T) {
	t.Parallel()
	for text, q := range map[string]release.Question{
		"r.io/velum":                          {Repository: "r.io/velum", Convert: true},
		"r.io/velum:4.0.0":                    {Repository: "r.io/velum", Tag: "4.0.0", Convert: true},
		"r.io/velum:4.0.0 (as written)":       {Repository: "r.io/velum", Tag: "4.0.0"},
		"r.io/velum (as written)":             {Repository: "r.io/velum"},
		"r.io/velum:1 (kubeadm) (as written)": {Repository: "r.io/velum", Tag: "1", Kubeadm: true},
	} {
		assert.Equal(t, text, q.String())
	}
}

func TestReferences(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]release.Reference{
		"sles12/velum":        {Repository: "docker.io/sles12/velum"},
		"velum:1":             {Repository: "docker.io/library/velum", Tag: "1"},
		"r.io:5000/a/velum:1": {Repository: "r.io:5000/a/velum", Tag: "1"},
	} {
		got, err := release.ParseReference(text)
		require.NoError(t, err)
		assert.Equal(t, want, got)
		name, err := release.NormalizeRepository(text)
		assert.Equal(t, want.Tag == "", err == nil, "a repository has no tag: %v", err)
		if err == nil {
			assert.Equal(t, want.Repository, name)
		}
	}
	for _, bad := range []string{"", "R", "a b", "r.io/a:"} {
		_, err := release.ParseReference(bad)
		require.Error(t, err, bad)
		_, err = release.NormalizeRepository(bad)
		require.Error(t, err, bad)
	}
	assert.Equal(t, "r.io/a:1", release.Reference{Repository: "r.io/a", Tag: "1"}.String())
	for tag, want := range map[string]string{
		"4.0.0-rev1-build1.1": "4.0.0-rev1", "4.0.0-rev1": "4.0.0-rev1", "4.0.0": "4.0.0", "latest": "latest",
	} {
		assert.Equal(t, want, release.Floating(tag, tags.Scheme{}))
	}
	for tag, want := range map[string]bool{"__TAG__": true, "%%LONG_VERSION%%": true, "4.0.0": false, "": false} {
		assert.Equal(t, want, release.IsPlaceholder(tag), tag)
	}
}

// A release is staged under its long tag or its digest: the record of the followed tag is CRI's.
func TestNamesOfARelease(t *testing.T) {
	t.Parallel()
	long := release.Release{Repository: "r.io/a", Tag: "1-rev1", Long: "1-rev1-build1", Digest: "sha256:d"}
	assert.Equal(t, "r.io/a:1-rev1-build1", long.StagedName())
	assert.Equal(t, "r.io/a:1-rev1-build1", release.FullName(long))
	for _, r := range []release.Release{{Tag: "1-rev1"}, {Tag: "l", Long: "l"}} {
		r.Repository, r.Digest = "r.io/a", "sha256:d"
		assert.Equal(t, "r.io/a@sha256:d", r.StagedName())
		assert.Equal(t, r.Tag, r.Name())
	}
}

func TestErrorsOfASource(t *testing.T) {
	t.Parallel()
	at := func(host string, mirror bool) error {
		return &release.SourceError{Repository: "r.io/a", Host: host, Mirror: mirror, Err: release.ErrNotFound}
	}
	require.EqualError(t, at("m:5000", true), "r.io/a: mirror m:5000: not found")
	require.EqualError(t, at("r.io", false), "r.io/a: upstream r.io: not found")
	require.EqualError(t, at("", false), "r.io/a: not found")
	recorded := &release.RecordedError{Text: "as it was said", Cause: at("r.io", false)}
	require.EqualError(t, recorded, "as it was said")
	require.ErrorIs(t, recorded, release.ErrNotFound)
	held := &release.HoldError{Hold: "quorum", Err: errors.New("member b does not answer")}
	require.EqualError(t, held, "held: quorum: member b does not answer")
	require.ErrorIs(t, held, release.ErrHeld)
	for err, want := range map[error][3]bool{ // it waits, the pod is down, the pod was not observed
		held:                                     {true, false, false},
		fmt.Errorf("x: %w", release.ErrConflict): {true, false, false},
		errors.New("x"):                          {},
		&release.UnhealthyError{Reason: "x"}:     {false, true, false},
		fmt.Errorf("x: %w", &release.UnhealthyError{Unobserved: true}): {false, false, true},
	} {
		assert.Equal(t, want, [3]bool{release.IsWaiting(err), release.IsDown(err), release.IsUnobserved(err)}, "%v", err)
	}
	assert.EqualError(t, &release.UnhealthyError{Reason: "it crashes"}, "it crashes")
}
