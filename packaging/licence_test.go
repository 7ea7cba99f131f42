// SPDX-License-Identifier: Apache-2.0

package packaging_test

import (
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// licences are known by a sentence of their text, in which any space may be a line end.
var licences = map[string]*regexp.Regexp{
	"Apache-2.0": sentence("Apache License Version 2.0"),
	"MIT":        sentence("Permission is hereby granted, free of charge, to any person obtaining"),
	"ISC":        sentence("Permission to use, copy, modify, and/or distribute this software for any purpose"),
	"MPL-2.0":    sentence("Mozilla Public License Version 2.0"),
	// BSD-2-Clause is the one without the third clause.
	"BSD-3-Clause": sentence("contributors may be used to endorse or promote products"),
}

var (
	bsd    = sentence("Redistribution and use in source and binary forms")
	noText = regexp.MustCompile(`[\s,*/#]+`)
	// The documentation of a module that is vendored without it.
	ofDocs = "LICENSE.docs"
)

func sentence(words string) *regexp.Regexp {
	return regexp.MustCompile(`(?i)` + regexp.QuoteMeta(noText.ReplaceAllString(words, " ")))
}

// licencesIn are those whose text a licence file has.
func licencesIn(text string) []string {
	text = noText.ReplaceAllString(text, " ")
	var found []string
	for name, has := range licences {
		if has.MatchString(text) {
			found = append(found, name)
		}
	}
	if bsd.MatchString(text) && !slices.Contains(found, "BSD-3-Clause") {
		found = append(found, "BSD-2-Clause")
	}
	return found
}

// The source package has what `go mod vendor` copies, and the program is linked of most of it: the spec names the licence
// of each licence file in it, and no other.
func TestTheSpecNamesTheLicencesOfWhatIsVendored(t *testing.T) {
	t.Parallel()
	text(t, "../go.sum") // so that the result is not taken from the cache when it changes
	vendor := filepath.Join(t.TempDir(), "vendor")
	command := exec.CommandContext(t.Context(), "go", "mod", "vendor", "-o", vendor)
	command.Dir = ".."
	out, err := command.CombinedOutput()
	require.NoError(t, err, string(out))

	named := map[string]bool{}
	files := []string{"../LICENSE"}
	require.NoError(t, filepath.WalkDir(vendor, func(name string, d fs.DirEntry, err error) error {
		isLicence := regexp.MustCompile(`(?i)^(licen[cs]e|copying)`).MatchString(d.Name()) && d.Name() != ofDocs
		if err == nil && !d.IsDir() && isLicence {
			files = append(files, name)
		}
		return err
	}))
	assert.Greater(t, len(files), 50)
	for _, name := range files {
		content, err := os.ReadFile(name)
		require.NoError(t, err)
		found := licencesIn(string(content))
		assert.NotEmpty(t, found, "%s: a licence that the test does not know", name)
		for _, licence := range found {
			named[licence] = true
		}
	}
	assert.Equal(t, strings.Join(slices.Sorted(maps.Keys(named)), " AND "),
		match(t, `(?s)\A.*?\nLicense: +([^\n]+)\n`, text(t, "image-update-agent.spec")), "of the program; a subpackage may have its own")
}
