// SPDX-License-Identifier: Apache-2.0

package tags_test

import (
	"bufio"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/tags"
)

// parts are the results of a tag's accessors.
type parts struct {
	form            tags.Form
	app, rev, build string
	hasV            bool
}

var huge = strings.Repeat("9", 50)

// goodTags cover the productions of SUSE's grammar.
var goodTags = map[string]parts{
	// app
	"0":       {form: tags.Short, app: "0"},
	"13":      {form: tags.Short, app: "13"},
	"3.2":     {form: tags.Short, app: "3.2"},
	"2.6.2":   {form: tags.Short, app: "2.6.2"},
	"1.6.0.4": {form: tags.Short, app: "1.6.0.4"},
	"v1":      {form: tags.Short, app: "v1", hasV: true},
	"v1.18.6": {form: tags.Short, app: "v1.18.6", hasV: true},
	// a version and a build to its publisher: the grammar cannot know
	"15.5.36.5.67":   {form: tags.Short, app: "15.5.36.5.67"},
	"20251013.34.98": {form: tags.Short, app: "20251013.34.98"},
	// app -rev
	"2.6.2-rev1":   {form: tags.Intermediate, app: "2.6.2", rev: "1"},
	"13-rev0":      {form: tags.Intermediate, app: "13", rev: "0"},
	"1.7.6-rev10":  {form: tags.Intermediate, app: "1.7.6", rev: "10"},
	"v1.18.6-rev2": {form: tags.Intermediate, app: "v1.18.6", rev: "2", hasV: true},
	// app -rev -build
	"2.6.2-rev1-build5.1":                     {form: tags.Long, app: "2.6.2", rev: "1", build: "5.1"},
	"2.6.2-rev1-build5":                       {form: tags.Long, app: "2.6.2", rev: "1", build: "5"},
	"2.6.2-rev1-build36.5.67":                 {form: tags.Long, app: "2.6.2", rev: "1", build: "36.5.67"},
	"2.6.2-rev1-build0.0":                     {form: tags.Long, app: "2.6.2", rev: "1", build: "0.0"},
	"v1.18.6-rev2-build3.8":                   {form: tags.Long, app: "v1.18.6", rev: "2", build: "3.8", hasV: true},
	"1.0-rev1-build20250101":                  {form: tags.Long, app: "1.0", rev: "1", build: "20250101"},
	"1." + huge + "-rev1-build" + huge + ".1": {form: tags.Long, app: "1." + huge, rev: "1", build: huge + ".1"},
}

// malformedTags use SUSE's scheme and break it, with the reason.
var malformedTags = map[string]string{
	"1.5.4-rev5-build":          "empty build",
	"1.5.4-rev5-build.1":        "empty build",
	"1.5.4-rev5-build1.":        "empty component in build",
	"1.5.4-rev5-build1..2":      "empty component in build",
	"1.5.4-rev5-build01.2":      "leading zero in build",
	"1.5.4-rev5-build1.02":      "leading zero in build",
	"1.5.4-rev5-buildRELEASE":   "no number in build",
	"1.5.4-rev5-build1.2-amd64": "text after build",
	"1.5.4-rev":                 "empty revision",
	"1.5.4-rev-build1.2":        "empty revision",
	"1.5.4-rev05":               "leading zero in revision",
	"1.5.4-rev00":               "leading zero in revision",
	"1.5.4-rev05-build1.2":      "leading zero in revision",
	"1.5.4-rev_VERSION":         "no number in revision",
	"1.5.4-rev5.1":              "text after revision",
	"1.5.4-rev5-":               "text after revision",
	"1.5.4-rev5-amd64":          "text after revision",
	"1.5.4-rev5-b1.2":           "text after revision",
	"1.5.4-build1.2":            "build without revision",
	"1.5.4-build5":              "build without revision",
	"1.5.4-build1234567":        "build without revision",
	"1.5.4-build":               "build without revision",
	"1.5.4-BUILD1.2":            "build without revision",
	"v1.5.4-build2025.0101":     "build without revision",
	"1.5.4-REV5":                "upper case",
	"1.5.4-Rev5-build1.2":       "upper case",
	"1.5.4-rev5-BUILD1.2":       "upper case",
	"V1.5.4-rev5":               "upper case",
	"1.05.4-rev5":               "leading zero in application version",
	"1..4-rev5":                 "empty component in application version",
	"1.4.-rev5":                 "empty component in application version",
	"2.0-rc1-rev1-build1.1":     "text after application version",
	"1.5.4-build1.2-rev5":       "text after application version",
	"1.5.4-revised-rev5":        "no number in revision",
}

// unrecognizedTags are OCI tags of other schemes.
var unrecognizedTags = []string{
	// names
	"latest", "beta", "stable", "oldstable", "oldstable-openssl", "rev1", "build5.1", "v", "V", "_",
	// suffixes
	"15-openssl", "1.26-openssl", "10-jre21", "v2.15.1-head", "v2.15.1-rc1", "v1.24.9b1", "1.5.4-reverse", "1.5.4-revision1",
	// the dash of BCI and of the RFC: never guessed
	"2.1.1-3.36", "2.6.1-1", "2.6.1-1.5.1", "2.6.1-1-5.1", "2.6.1-b5.1",
	// dates in place of a build, and dates with an underscore
	"v1.14.7-build20260909", "v0.8.4-build20240523", "v1.21.10-build2021041301", "v1_20211210",
	"v1.32.3-rke2r1-build20250312", "v3.5.19-k3s1-build20250306",
	"v1.32.0-rc3.0.20241220224140-68fbd1a6b543-build20250101", "1.5.4-build1.2-amd64", "1.5.4-buildx",
	// hashes and signatures
	"e10ca52925930b1530429c37e985631bc67d8e3f", "2.2.0-c558096-cap",
	"v1.27.3-713b673cccf1af661efd75ca20532336517ddcb9",
	"sha256-7e9a6ca62c3b502a125754fbeb4cde2d37d4261a9c905359585bfc0a63ff17f4",
	"sha256-7e9a6ca62c3b502a125754fbeb4cde2d37d4261a9c905359585bfc0a63ff17f4.sig",
	// the placeholder of a template
	"__TAG__",
	// numbers that break the grammar, but without a mark of the scheme
	"20.04.1", "00", "1.", "1..2", "v1.02", "V1.2.3", "vv1", "1.2.3_1",
}

// invalidTags are no OCI tags.
var invalidTags = []string{
	"", ".1", "-rev1", "1.5.4-rev1+5.1", "2.6.1+5.1", "1.5.4:rev1", "1.5.4~rc1", "%%PKG_VERSION%%", "1.5.4-rev1-build<RELEASE>",
	" 1.5.4", "1.5.4\n", "1.5.4 ", "a/b", "１.2", "1.2\x00", "é", strings.Repeat("1", 129),
}

// ascendingTags are in ascending order.
var ascendingTags = []string{
	"0", "0.9", "0.10", "1",
	"1.5.4", "1.5.4-rev1", "1.5.4-rev1-build2.9", "1.5.4-rev1-build2.19", "1.5.4-rev1-build3.5", "1.5.4-rev1-build3.5.1",
	"1.5.4-rev2", "1.5.4-rev9-build1.1", "1.5.4-rev10-build1.1", "1.5.5", "1.10.0", "1.10.0.4",
	"3.2", "3.2-rev7", "3.2.0", "3.2.0-rev1", "3.2.1", "3.12",
	"12", "v12", "12-rev1", "v12-rev1", "v12.0", "2018.3.0", "9999999999999999999", "10000000000000000000",
}

// corpus reads testdata/tags.tsv: tags that publishers really used, with image, tag and source. It returns each tag
// once.
func corpus(tb testing.TB) []string {
	tb.Helper()
	file, err := os.Open("testdata/tags.tsv")
	require.NoError(tb, err)
	defer func() { assert.NoError(tb, file.Close()) }()

	var all []string
	seen := map[string]bool{}
	for lines := bufio.NewScanner(file); ; {
		if !lines.Scan() {
			require.NoError(tb, lines.Err())
			return all
		}
		if strings.HasPrefix(lines.Text(), "#") {
			continue
		}
		fields := strings.Split(lines.Text(), "\t")
		require.Len(tb, fields, 3, lines.Text())
		if tag := fields[1]; !seen[tag] {
			seen[tag] = true
			all = append(all, tag)
		}
	}
}

func TestCorpusClasses(t *testing.T) {
	t.Parallel()
	classes := map[tags.Class][]string{}
	for _, text := range corpus(t) {
		tag, err := tags.SUSEOnly().Parse(text)
		class := classOf(tag, err)
		classes[class] = append(classes[class], text)
	}
	assert.Len(t, classes[tags.ClassShort], 123)
	assert.Len(t, classes[tags.ClassIntermediate], 38)
	assert.Len(t, classes[tags.ClassLong], 26)
	assert.Equal(t, []string{"1.5.4-rev5-build"}, classes[tags.ClassMalformed])
	assert.Len(t, classes[tags.ClassUnrecognized], 19)
	assert.Empty(t, classes[tags.ClassInvalid])
}
