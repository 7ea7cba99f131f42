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

// What README and the help show of `manifests render` works on the real templates.
func TestTheExamplesOfRenderRun(t *testing.T) {
	t.Parallel()
	const templates = "../../manifests/testdata/templates"
	readme, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	help := (&app{}).manifestsRenderCommand().Example
	dir := t.TempDir()
	text, err := os.ReadFile(filepath.Join(templates, "kube-apiserver.yaml"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "kube-apiserver.yaml"), text, 0o600))
	place := strings.NewReplacer(
		"public.yaml", templates+"/public.yaml", "private.yaml", templates+"/private.yaml",
		"/etc/kubernetes/manifests", dir, "--to out", "--to "+t.TempDir(),
	)
	for name, page := range map[string]string{"README": string(readme), "help": help} {
		page = strings.ReplaceAll(page, "\\\n", " ")
		examples := regexp.MustCompile(`(?m)^ +(?:\$ )?image-update-agent (manifests render .*)$`).FindAllStringSubmatch(page, -1)
		assert.NotEmpty(t, examples, name)
		for _, example := range examples {
			out := does(t, strings.Fields(place.Replace(example[1]))...)
			if strings.Contains(example[1], "--diff") {
				assert.Regexp(t, `(?m)^\+ +image: registry\.suse\.com/`, out, example[1])
			}
		}
	}
}
