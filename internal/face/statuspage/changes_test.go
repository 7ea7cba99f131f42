// SPDX-License-Identifier: Apache-2.0

package statuspage_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/catalog"
	"github.com/kubic-project/image-update-agent/internal/face/statuspage"
	"github.com/kubic-project/image-update-agent/internal/face/terminal"
	"github.com/kubic-project/image-update-agent/internal/node/contents"
)

// What an image says of itself is shown; only a plain address becomes a link.
func TestLabelsOfAnImage(t *testing.T) {
	t.Parallel()
	const source = "org.opencontainers.image.source"
	for text, want := range map[string]bool{
		"https://example.com/a?b=c": true, "http://example.com": true, "https://": false, "javascript:alert(1)": false,
		"data:text/html,x": false, "//example.com": false, "registry.suse.com/bci/bci-base:15.6": false,
		"https://bank.example@evil.example/": false, "https://example.com/\x1b[31m": false, "HTTPS://example.com": false,
		"https://example.com/" + strings.Repeat("a", 300): false,
	} {
		labels := statuspage.LabelsOf(nil, map[string]string{source: text, "other": "x"})
		require.Len(t, labels, 1)
		assert.Equal(t, want, labels[0].Link, text)
		assert.Equal(t, source, labels[0].Name)
		assert.LessOrEqual(t, len(labels[0].To), 300)
		assert.NotContains(t, labels[0].To, "\x1b")
	}
}

func TestChangesForPeople(t *testing.T) {
	t.Parallel()
	changes := func(packages []contents.Change, same int, err string) statuspage.ImageChanges {
		return statuspage.ImageChanges{
			PodManifest: "velum.yaml", Container: "velum", Image: "r.io/velum", Change: "rebuild", Packages: packages,
			From: status.Named{Tag: "1.0-rev1-build1"}, To: status.Named{Tag: "1.0-rev1-build2"}, Same: same, Error: err,
			Labels: statuspage.LabelsOf(
				map[string]string{"org.opencontainers.image.revision": "abc"},
				map[string]string{"org.opencontainers.image.revision": "def"}),
		}
	}
	var out bytes.Buffer
	require.NoError(t, statuspage.Changes(terminal.NewPage(&out, time.Now()), []statuspage.ImageChanges{
		changes([]contents.Change{
			{Change: contents.Added, Format: contents.RPM, Name: "bash", To: "5.2-1"},
			{Change: contents.Changed, Format: contents.RPM, Name: "libopenssl3", From: "3.1-1", To: "3.1-2", Source: "openssl-3"},
		}, 180, ""),
		changes([]contents.Change{}, 1, ""),
		changes(nil, 0, ""),
		changes(nil, 0, "1.0-rev1-build2: var/lib/rpm/Packages: not a regular file"),
	}))
	const head, tail = "velum.yaml velum: r.io/velum 1.0-rev1-build1 -> 1.0-rev1-build2 (rebuild)\n",
		"  org.opencontainers.image.revision: abc -> def\n"
	assert.Equal(t, head+
		"  PACKAGE      RUNS   OFFERED  SOURCE\n"+
		"  bash         -      5.2-1\n"+
		"  libopenssl3  3.1-1  3.1-2    openssl-3\n"+
		"  2 changes, 180 the same.\n"+tail+"\n"+
		head+"  No package changes; 1 package in both.\n"+tail+"\n"+
		head+"  The images have no package database that is known, nor Go programs in the usual directories.\n"+tail+"\n"+
		head+"  error: 1.0-rev1-build2: var/lib/rpm/Packages: not a regular file\n"+tail, out.String())
}

// Beside an offer stands what its publisher says of it, in the status, the plan and a dry run.
func TestWhatAnUpdateBringsForPeople(t *testing.T) {
	t.Parallel()
	brings := &catalog.Brought{
		Severity: catalog.SeverityImportant, Fixes: []string{"CVE-2026-1234", "bsc#1"}, Partial: true,
		Notes: []catalog.NoteOfTag{{Tag: "1.0-rev1-build2", Note: "a slow query"}},
	}
	const want = "important; fixes CVE-2026-1234, bsc#1; or more, as it does not list all releases"
	s := status.Status{State: status.StateStaged, Images: []status.ImageStatus{{
		Image: "r.io/velum", Container: "velum", PodManifest: "velum.yaml", Change: "rebuild", Staged: true,
		Offered: &status.Named{Tag: "1.0-rev1-build2"}, Brings: brings,
	}}}
	var out bytes.Buffer
	require.NoError(t, statuspage.Status(terminal.NewPage(&out, time.Now()), s, false))
	assert.Contains(t, out.String(), "\nThe updates bring, as the release catalog says:\n  velum.yaml velum: "+want+
		"\n    1.0-rev1-build2: a slow query\n")

	out.Reset()
	v := statuspage.PlanView{Images: []statuspage.ImageView{{Image: "r.io/velum", Change: "rebuild", Brings: brings}}}
	require.NoError(t, v.Write(&out, time.UTC))
	assert.Contains(t, out.String(), "brings "+want)

	out.Reset()
	dry := []statuspage.Outcome{{Outcome: status.Outcome{PodManifest: "velum.yaml", Result: status.ResultWouldApply, Brings: brings}}}
	require.NoError(t, statuspage.WriteOutcomes(&out, dry, "", time.UTC))
	assert.Contains(t, out.String(), want)

	out.Reset()
	past := []status.HistoryEntry{{Container: "velum", Severity: catalog.SeverityLow, Fixes: []string{"bsc#2"}}}
	require.NoError(t, statuspage.History(terminal.NewPage(&out, time.Now()), past))
	assert.Contains(t, out.String(), "brought  low; fixes bsc#2\n")
}
