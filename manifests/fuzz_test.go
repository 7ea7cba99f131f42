// SPDX-License-Identifier: Apache-2.0

package manifests_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/internal/base/yamledit"
	"github.com/kubic-project/image-update-agent/manifests"
)

// seeds adds all templates.
func seeds(f *testing.F) {
	f.Add([]byte(jsonPod(`, "annotations": {"a": "\ud83d\ude00\/\u0000"}`, `"r.example\/a:1"`)))
	f.Add([]byte("\t" + strings.ReplaceAll(jsonPod("", `"a"`), " ", "\r\n\t")))
	f.Helper()
	files, err := filepath.Glob("testdata/[gpt]*/*.*")
	require.NoError(f, err)
	for _, file := range files {
		data, err := os.ReadFile(file)
		require.NoError(f, err)
		if filepath.Ext(file) == ".yaml" {
			f.Add(data)
		}
		for _, section := range txtar.Parse(data).Files {
			if section.Name == "template" {
				f.Add(section.Data)
			}
		}
	}
	for _, tc := range bytesKept {
		f.Add([]byte(strings.ReplaceAll(tc.template, "E", "\r\n")))
	}
	for _, tc := range probesWritten {
		f.Add([]byte(pod("a:1" + tc.container)))
	}
	for _, tc := range noPodManifests {
		if len(tc.data) < 4096 {
			f.Add([]byte(tc.data))
		}
	}
}

// FuzzParse checks that Parse does not panic and that accepted files keep the limits and give the place of each image.
func FuzzParse(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := manifests.Parse(data)
		if err != nil {
			require.Empty(t, p)
			return
		}
		require.LessOrEqual(t, len(data), yamledit.MaxBytes)
		require.True(t, utf8.Valid(data))
		require.NotEmpty(t, p.Name)
		require.NotEmpty(t, p.Images)
		for _, img := range p.Images {
			require.Equal(t, img.Editable, img.Reason == "", img.Path)
			require.Positive(t, img.Line)
			require.Positive(t, img.Column)
			require.Equal(t, img.Reference, manifests.SplitReference(img.Reference).String())
		}
		require.GreaterOrEqual(t, p.Grace, time.Duration(0))
		require.LessOrEqual(t, len(p.Probes), 3*len(p.Images))
		for _, probe := range p.Probes {
			require.GreaterOrEqual(t, probe.Timeout, time.Duration(0))
			require.True(t, probe.Port >= 0 && probe.Port < 1<<16, probe.Port)
		}
		equal, err := equalBytes(data, data)
		require.NoError(t, err)
		require.True(t, equal)
	})
}

// FuzzRender checks that Render fails or returns a valid pod manifest that renders to itself.
func FuzzRender(f *testing.F) {
	seeds(f)
	o := manifests.Overrides{
		Tag: func(repository string, _ manifests.Image) (string, bool) {
			return "2-rev1", !strings.Contains(repository, "busybox")
		},
		Rewrites:   []manifests.Rewrite{{From: "sles12", To: "registry01:5000/sles12"}, {From: "a", To: "a/b"}, {From: "c/d", To: "c"}},
		PullPolicy: manifests.PullAlways,
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := renderBytes(data, o)
		if err != nil {
			require.Empty(t, r)
			return
		}
		require.Equal(t, len(r.Changes) == 0, string(data) == string(r.Data))
		pod, err := manifests.Parse(r.Data)
		require.NoError(t, err)
		require.Equal(t, pod.Images, r.Images)
		again, err := renderBytes(r.Data, o)
		require.NoError(t, err)
		require.Equal(t, string(r.Data), string(again.Data))
		if len(r.Changes) > 0 {
			equal, err := equalBytes(data, r.Data)
			require.NoError(t, err)
			require.False(t, equal)
		}
	})
}
