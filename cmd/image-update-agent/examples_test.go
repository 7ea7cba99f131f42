// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The examples in the help of `manifests render` work on the real templates.
func TestTheExamplesOfRenderRun(t *testing.T) {
	t.Parallel()
	const templates = "../../manifests/testdata/templates"
	help := strings.ReplaceAll((&app{}).manifestsRenderCommand().Example, "\\\n", " ")
	dir := t.TempDir()
	text, err := os.ReadFile(filepath.Join(templates, "kube-apiserver.yaml"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "kube-apiserver.yaml"), text, 0o600))
	place := strings.NewReplacer(
		"public.yaml", templates+"/public.yaml", "private.yaml", templates+"/private.yaml",
		"/etc/kubernetes/manifests", dir, "--to out", "--to "+t.TempDir(),
	)
	examples := regexp.MustCompile(`(?m)^ +image-update-agent (manifests render .*)$`).FindAllStringSubmatch(help, -1)
	assert.NotEmpty(t, examples)
	for _, example := range examples {
		out := does(t, strings.Fields(place.Replace(example[1]))...)
		if strings.Contains(example[1], "--diff") {
			assert.Regexp(t, `(?m)^\+ +image: registry\.`, out, example[1])
		}
	}
}
