// SPDX-License-Identifier: Apache-2.0

package catalog_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/internal/catalog"
	"github.com/kubic-project/image-update-agent/tags"
)

func TestFixesAreNamedInTheFormsOfTheirTrackers(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"CVE-2026-1234":                "CVE-2026-1234",
		"CVE-1999-0001":                "CVE-1999-0001",
		"CVE-2026-1234567":             "CVE-2026-1234567",
		"CVE-2026-1234,bsc#1234567":    "CVE-2026-1234 bsc#1234567",
		" CVE-2026-1234 , boo#1 ":      "CVE-2026-1234 boo#1",
		"bsc#1,bsc#1,bnc#2":            "bsc#1 bnc#2",
		"GHSA-2222-cfgh-9xvw":          "GHSA-2222-cfgh-9xvw",
		"SUSE-SU-2026:1234-1":          "SUSE-SU-2026:1234-1",
		"openSUSE-SU-2026:0012-1":      "openSUSE-SU-2026:0012-1",
		"SUSE-RU-2026:12-1":            "SUSE-RU-2026:12-1",
		"RHSA-2026:1234":               "RHSA-2026:1234",
		"":                             "",
		"CVE-2026-1234,":               "",
		"CVE-2026-123":                 "",
		"CVE-1998-1234":                "",
		"CVE-20261-1234":               "",
		"CVE-2026-" + repeat("1", 20):  "",
		"cve-2026-1234":                "",
		"CVE-2026-1234 ":               "CVE-2026-1234",
		"CVE-2026-1234 CVE-2026-1235":  "",
		"CVE-2026-1234\nbsc#1":         "",
		"CVE-2026-1234\x1b[31m":        "",
		"CVE-2026-١٢٣٤":                "",
		"bsc#0":                        "",
		"bsc1234":                      "",
		"bsc#-1":                       "",
		"GHSA-aaaa-bbbb-cccc":          "",
		"RHSA-2026-1234":               "",
		"SUSE-XU-2026:1234-1":          "",
		"everything":                   "",
		"https://bugzilla.suse.com/12": "",
	} {
		got, err := catalog.ParseFixes(text)
		assert.Equal(t, want, strings.Join(got, " "), "%q", text)
		assert.Equal(t, want == "", err != nil, "%q: %v", text, err)
	}
	var many []string
	for n := range catalog.MaxFixes {
		many = append(many, fmt.Sprintf("bsc#%d", n+1))
	}
	got, err := catalog.ParseFixes(append(many, many...)...)
	require.NoError(t, err)
	assert.Equal(t, many, got)
	_, err = catalog.ParseFixes(append(many, "bsc#9999")...)
	assert.True(t, isErrorOf(err, catalog.KindTooLarge), "%v", err)
}

func TestSeverities(t *testing.T) {
	t.Parallel()
	words := []string{"low", "moderate", "important", "critical"}
	last := catalog.Severity("")
	for _, word := range words {
		s, err := catalog.ParseSeverity(word)
		require.NoError(t, err)
		assert.Positive(t, s.Compare(last))
		last = s
	}
	for _, word := range []string{"", "Important", "high", "important ", "medium", "unknown"} {
		_, err := catalog.ParseSeverity(word)
		assert.Error(t, err, word)
	}
}

// A reader takes ids that later publishers may know, and nothing that is not bounded and printable.
func TestAdvisoriesThatAreRefused(t *testing.T) {
	t.Parallel()
	for title, c := range map[string]struct {
		text  string
		isBad bool
	}{
		"whole":               {`{"note":"a note","fixes":["CVE-2026-1234"],"severity":"low"}`, false},
		"noted":               {`{"op":"` + opTag(1) + `","turn":3}`, false},
		"of a later tracker":  {`{"fixes":["USN-1234-1","gh#kubic/velum#12"]}`, false},
		"a field of later":    {`{"links":["https://example.com"]}`, false},
		"another severity":    {`{"severity":"high"}`, true},
		"two lines":           {`{"note":"a\nb"}`, true},
		"an escape sequence":  {`{"note":"\u001b[31mred"}`, true},
		"a long note":         {`{"note":"` + repeat("x", 513) + `"}`, true},
		"a megabyte":          {`{"note":"` + repeat("x", 1<<20) + `"}`, true},
		"a fix of two words":  {`{"fixes":["CVE 2026"]}`, true},
		"markup":              {`{"fixes":["<script>"]}`, true},
		"an empty fix":        {`{"fixes":[""]}`, true},
		"a long fix":          {`{"fixes":["` + repeat("x", 65) + `"]}`, true},
		"many fixes":          {`{"fixes":["a"` + repeat(`,"a"`, 256) + `]}`, true},
		"a number":            {`{"fixes":[7]}`, true},
		"of no op":            {`{"op":"prod"}`, true},
		"a list":              {`["CVE-2026-1234"]`, true},
		"in another spelling": {`{"Severity":"low"}`, true},
	} {
		data := packed(t, fmt.Sprintf(`{"image":%q,"releases":[{"tag":"1","digest":%q,"advisory":%s}]}`,
			velum, digest.FromString("1"), c.text))
		_, err := catalog.DecodePage(data, refTo(velum, data))
		assert.Equal(t, c.isBad, err != nil, "%s: %v", title, err)
	}
}

// A page has space for the advisories of its newest releases, so that no advisory makes it too large.
func TestAdvisoriesOfAPageAreBounded(t *testing.T) {
	t.Parallel()
	page := catalog.Page{Image: velum}
	for n := range 400 {
		r := build(1)
		r.Tag, r.Digest = fmt.Sprintf("4.0.%d-rev1-build1.1", n), digest.FromString(fmt.Sprint(n))
		r.Advisory = &catalog.Advisory{Note: repeat("x", 512), Fixes: slices.Repeat([]string{repeat("f", 64)}, 64)}
		page.Releases = append(page.Releases, r)
	}
	page = page.Trimmed()
	require.Len(t, page.Releases, 400, "each is the newest of its version")
	_, err := page.Encode()
	require.NoError(t, err)
	assert.NotNil(t, page.Releases[0].Advisory)
	assert.NotNil(t, page.Releases[20].Advisory)
	assert.Nil(t, page.Releases[399].Advisory)
}

// From build 3 to build 7 there are the fixes of 4 to 7, and the highest severity of them.
func TestWhatLiesBetweenTwoReleases(t *testing.T) {
	t.Parallel()
	is := func(tag string, hour int, severity catalog.Severity, fixes ...string) catalog.Release {
		b := catalog.Release{Tag: tag, Digest: digest.FromString(tag), Created: noon.Add(time.Duration(hour) * time.Hour)}
		if severity != "" || fixes != nil {
			b.Advisory = &catalog.Advisory{Severity: severity, Fixes: fixes, Note: "of " + tag}
		}
		return b
	}
	line := []catalog.Release{
		is("1.0-rev1-build7.1", 7, "low", "CVE-2026-0007"), is("1.0-rev1-build6.1", 6, ""),
		is("1.0-rev1-build5.1", 5, "critical", "CVE-2026-0005", "bsc#5"), is("1.0-rev1-build4.1", 4, "moderate", "bsc#5", "bsc#4"),
		is("1.0-rev1-build3.1", 3, "critical", "bsc#3"), is("1.0-rev1-build2.1", 2, "", "bsc#2"),
	}
	// A fix of the older line that came after the newer line's release is not in that one.
	lines := []catalog.Release{
		is("1.1-rev1-build2.1", 9, "low", "bsc#12"), is("1.1-rev1-build1.1", 5, "", "bsc#11"),
		is("1.0-rev1-build5.1", 10, "critical", "bsc#10"), is("1.0-rev1-build4.1", 4, "moderate", "bsc#4"), is("1.0-rev1-build3.1", 3, ""),
	}
	twice := slices.Concat([]catalog.Release{is("1.0-rev1-build8.1", 8, "important", "bsc#8")}, line)
	twice[0].Digest = line[0].Digest
	hashes := []catalog.Release{is("nightly-c", 3, "low", "bsc#3"), is("nightly-b", 2, "important", "bsc#2"), is("nightly-a", 1, "critical")}
	variants := []catalog.Release{
		is("1.3-alpine", 3, "low", "bsc#3"), is("1.3", 3, "critical"), is("1.2", 2, "critical"), is("1.2-alpine", 2, "moderate", "bsc#2"),
		is("1.1-alpine", 1, "critical"),
	}
	for title, c := range map[string]struct {
		builds   []catalog.Release
		from, to string
		severity catalog.Severity
		fixes    string
		partial  bool
	}{
		"from 3 to 7, and the severity falls": {line, "1.0-rev1-build3.1", "1.0-rev1-build7.1", "critical", "CVE-2026-0007 CVE-2026-0005 bsc#5 bsc#4", false},
		"one step":                            {line, "1.0-rev1-build6.1", "1.0-rev1-build7.1", "low", "CVE-2026-0007", false},
		"nothing is said":                     {line, "1.0-rev1-build5.1", "1.0-rev1-build6.1", "", "", false},
		"not to the newest":                   {line, "1.0-rev1-build3.1", "1.0-rev1-build4.1", "moderate", "bsc#5 bsc#4", false},
		"the same":                            {line, "1.0-rev1-build5.1", "1.0-rev1-build5.1", "", "", false},
		"lower":                               {line, "1.0-rev1-build7.1", "1.0-rev1-build5.1", "", "", false},
		"nothing runs":                        {line, "", "1.0-rev1-build5.1", "critical", "CVE-2026-0005 bsc#5", false},
		"what runs is not listed":             {line, "1.0-rev1-build1.1", "1.0-rev1-build5.1", "critical", "CVE-2026-0005 bsc#5", true},
		"the offered is not listed":           {line, "1.0-rev1-build3.1", "1.0-rev1-build9.1", "", "", true},
		"no page":                             {nil, "1.0-rev1-build3.1", "1.0-rev1-build7.1", "", "", true},
		"another version":                     {lines, "1.0-rev1-build3.1", "1.1-rev1-build2.1", "moderate", "bsc#12 bsc#11 bsc#4", false},
		"one image under two tags":            {twice, "1.0-rev1-build6.1", "1.0-rev1-build7.1", "important", "bsc#8 CVE-2026-0007", false},
		"tags without an order":               {hashes, "nightly-a", "nightly-c", "important", "bsc#3 bsc#2", false},
		"other variants":                      {variants, "1.1-alpine", "1.3-alpine", "moderate", "bsc#3 bsc#2", false},
	} {
		digestOf := func(tag string) digest.Digest {
			if tag == "" {
				return ""
			}
			return digest.FromString(tag)
		}
		got := catalog.Between(c.builds, digestOf(c.from), digestOf(c.to), tags.Scheme{})
		assert.Equal(t, c.severity, got.Severity, title)
		assert.Equal(t, c.fixes, strings.Join(got.Fixes, " "), title)
		assert.Equal(t, c.partial, got.Partial, title)
	}
	got := catalog.Between(line, line[4].Digest, line[0].Digest, tags.Scheme{})
	assert.Equal(t, catalog.NoteOfTag{Tag: "1.0-rev1-build7.1", Note: "of 1.0-rev1-build7.1"}, got.Notes[0])
	assert.Len(t, got.Notes, 3)
	many := []catalog.Release{is("1.0-rev1-build9.1", 9, "")}
	for n := range 8 {
		b := is(fmt.Sprintf("1.0-rev1-build%d.1", 8-n), 1, "low")
		for m := range catalog.MaxFixes {
			b.Advisory.Fixes = append(b.Advisory.Fixes, fmt.Sprintf("bsc#%d", 1000*(n+1)+m))
		}
		many = append(many, b)
	}
	got = catalog.Between(many, many[8].Digest, many[0].Digest, tags.Scheme{})
	assert.Len(t, got.Fixes, 256)
	assert.True(t, got.Partial)
}
