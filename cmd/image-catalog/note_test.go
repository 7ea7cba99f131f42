// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/internal/catalog"
	"github.com/kubic-project/image-update-agent/internal/catalog/publish"
)

// What a build is good for is said when it is added, kept by a promotion, and noted a day later in each channel.
func TestNotes(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	builds := []string{"1.0-rev1-build1.1", "1.0-rev1-build2.1", "1.0-rev1-build3.1"}
	s.push("velum", builds...)
	s.does("init", "stage", "prod", "--unsigned", "--by", "anna")
	s.does("add", "stage", "HOST/velum:"+builds[0])
	s.does("promote", "stage", "prod", "velum")
	s.does("add", "stage", "HOST/velum:"+builds[1], "--severity", "critical", "--fixes", "CVE-2026-1234,bsc#1", "--note", "restart velum")
	s.does("add", "stage", "HOST/velum:"+builds[2], "--severity", "low", "--fixes", "bsc#1", "--fixes", "bsc#2")

	out := s.does("diff", "stage", "prod")
	assert.Contains(t, out, "rebuild; critical; fixes bsc#1, bsc#2, CVE-2026-1234")
	var list []publish.Difference
	require.NoError(t, json.Unmarshal([]byte(s.does("diff", "stage", "prod", "--output", "json")), &list))
	assert.Equal(t, catalog.SeverityCritical, list[0].Severity)
	assert.Equal(t, []catalog.NoteOfTag{{Tag: builds[1], Note: "restart velum"}}, list[0].Notes)

	s.does("promote", "stage", "prod", "velum:"+builds[1])
	assert.Contains(t, s.does("inspect", "prod", "velum"), "critical; fixes CVE-2026-1234, bsc#1; restart velum")
	assert.Contains(t, s.does("log", "prod"), "critical; fixes CVE-2026-1234, bsc#1; restart velum")

	out = s.does("note", "prod", "velum:"+builds[1], "--severity", "moderate", "--note", "")
	assert.Contains(t, out, "~ HOST/velum:"+builds[1]+"  noted: moderate; fixes CVE-2026-1234, bsc#1\n")
	assert.Contains(t, s.does("log", "prod"), " noted something of 1 release\n")
	s.ends(exitNothing, "noted already", "note", "prod", "velum:"+builds[1], "--severity", "moderate")
	s.ends(exitNothing, "listed with the same set and rollout already; the channel already has another note", "promote", "stage", "prod", "velum:"+builds[1])
	s.ends(exitNothing, "listed already; the channel already has another note", "add", "stage", "HOST/velum:"+builds[1], "--severity", "low")
	assert.Contains(t, s.does("add", "stage", "HOST/velum:"+builds[0], "--severity", "low"), "listed already; noted: low")

	// Nodes of prod skip a build: its fixes and its severity are those of the promoted one.
	s.does("init", "edge", "--unsigned")
	s.does("promote", "stage", "edge", "velum:"+builds[0])
	s.does("promote", "stage", "edge", "velum")
	assert.Contains(t, s.does("inspect", "edge", "velum"), "critical; fixes bsc#1, bsc#2, CVE-2026-1234\n")
	out, _, code := s.run("promote", "stage", "edge", "velum")
	assert.Equal(t, exitNothing, code)
	assert.NotContains(t, out, "another note")

	s.does("withdraw", "prod", "velum:"+builds[1], "--reason", "bsc#3")
	out = s.does("note", "prod", "velum:"+builds[1], "--fixes", "", "--severity", "")
	assert.Contains(t, out, "~ HOST/velum:"+builds[1]+"  note removed\n")
	assert.Contains(t, s.does("inspect", "prod", "velum"), "withdrawn: bsc#3\n", "neither more nor less")
	s.does("freeze", "prod", "--until", "2100-01-01", "--reason", "holidays")
	s.does("note", "prod", "velum:"+builds[0], "--note", "the first one")
	s.ends(exitUsage, "the tag is missing: want IMAGE:TAG", "note", "prod", "velum", "--note", "x")
	_, errs, _ := s.run("note", "prod", "velum:"+builds[2], "--note", "x")
	assert.Contains(t, errs, "channel prod does not list it")

	for line, want := range map[string]string{
		"note prod":                           "IMAGE:TAG is missing",
		"note prod velum:1":                   "want --severity, --fixes or --note",
		"note prod velum:1 --severity high":   "--severity: severity \"high\": want low, moderate, important or critical",
		"note prod velum:1 --fixes CVE-1":     "--fixes: \"CVE-1\": want CVE-2026-1234",
		"note prod velum:1 --fixes bsc#1,,":   "--fixes: \"\": want CVE-2026-1234",
		"add stage HOST/velum:1 --fixes no":   "--fixes: \"no\": want CVE-2026-1234",
		"add stage HOST/velum:1 --severity 1": "--severity: ",
	} {
		s.ends(exitUsage, want, strings.Fields(line)...)
	}
	for _, text := range []string{"two\nlines", "\x1b[31mred", strings.Repeat("x", 513), strings.Repeat("x", 1<<20)} {
		s.ends(exitUsage, "--note: want at most 512 printable bytes", "note", "prod", "velum:"+builds[0], "--note", text)
	}
}
