// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/internal/catalog"
	"github.com/kubic-project/image-update-agent/internal/catalog/census"
	"github.com/kubic-project/image-update-agent/internal/catalog/publish"
	"github.com/kubic-project/image-update-agent/internal/face/cli"
	"github.com/kubic-project/image-update-agent/tools/manpage"
)

// man makes the page as `make install` does, and takes roff's hyphens and fonts away, so that words can be looked for.
func man(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/man/image-catalog.1.md")
	require.NoError(t, err)
	page, err := manpage.Page(string(text), version, map[string]func() (string, error){
		"verbs": func() (string, error) {
			return manpage.Verbs(func(path ...string) (string, error) {
				out, _, code := run(t, append([]string{"help"}, path...)...)
				assert.Zero(t, code)
				return out, nil
			})
		},
	})
	require.NoError(t, err)
	return strings.NewReplacer(`\-`, "-", `\fB`, "", `\fI`, "", `\fR`, "", `\fP`, "", `\&`, "").Replace(string(page))
}

// verbs are all commands but cobra's own.
func verbs() []*cobra.Command {
	var out []*cobra.Command
	for _, verb := range newApp(streams{}).command().Commands() {
		if verb.Name() != "help" && verb.Name() != "completion" {
			out = append(out, verb)
		}
	}
	return out
}

func TestThePageHasEveryVerbFlagAndExitCode(t *testing.T) {
	t.Parallel()
	page := man(t)
	for _, verb := range verbs() {
		assert.Regexp(t, `(?m)^\.SS `+verb.Name()+`( |$)`, page)
		for _, flag := range regexp.MustCompile(`--[a-z-]+`).FindAllString(verb.Flags().FlagUsages(), -1) {
			assert.Contains(t, page, flag, verb.Name())
		}
	}
	for _, flag := range regexp.MustCompile(`--[a-z-]+`).FindAllString(newApp(streams{}).command().PersistentFlags().FlagUsages(), -1) {
		assert.Contains(t, page, flag)
	}
	_, codes, found := strings.Cut(page, "\n.SH EXIT STATUS\n")
	require.True(t, found)
	for _, code := range []int{exitDone, exitFailed, exitUsage, exitNothing} {
		assert.Contains(t, codes, ".TP\n"+strconv.Itoa(code)+"\n")
	}
}

// views are what each verb prints for programs.
var views = map[string]any{
	"init, add, promote, publish, withdraw, note, freeze, unfreeze, refresh": publish.Result{}, "diff": publish.Difference{},
	"inspect": inspected{}, "log": catalog.Entry{}, "rollout": rolling{}, "fleet": census.Standing{}, "keygen": keyPair{}, "list": listed{},
	"verify": publish.Finding{}, "images": publish.Copy{}, "prune": pruned{}, "version": cli.Version{},
}

func TestThePageHasEveryFieldForPrograms(t *testing.T) {
	t.Parallel()
	_, section, found := strings.Cut(man(t), "\n.SH JSON\n")
	require.True(t, found)
	section, _, _ = strings.Cut(section, "\n.SH ")
	named := map[string]bool{}
	for title, view := range views {
		_, text, found := strings.Cut(section, ".TP\n"+title+"\n")
		require.True(t, found, title)
		text, _, _ = strings.Cut(text, "\n.TP\n")
		for _, field := range fieldsOf(reflect.TypeOf(view)) {
			assert.Regexp(t, `\b`+field+`\b`, text, title)
		}
		for verb := range strings.SplitSeq(title, ", ") {
			named[verb] = true
		}
	}
	for _, verb := range verbs() {
		assert.NotNil(t, verb.Flags().Lookup("output"), verb.Name())
		assert.True(t, named[verb.Name()], verb.Name())
	}
}

// fieldsOf are the names in a type's JSON, those of its parts too.
func fieldsOf(t reflect.Type) []string {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || t == reflect.TypeFor[time.Time]() {
		return nil
	}
	var all []string
	for field := range t.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if field.IsExported() && name != "-" {
			all = append(all, name)
			if field.Type != reflect.TypeFor[[]catalog.Entry]() { // as of log
				all = append(all, fieldsOf(field.Type)...)
			}
		}
	}
	return all
}

// Whoever reads --help sees how each verb is called, with its name.
func TestEveryVerbHasExamples(t *testing.T) {
	t.Parallel()
	for _, verb := range verbs() {
		examples := strings.ReplaceAll(verb.Example, "\\\n", " ")
		found := 0
		for line := range strings.Lines(examples) {
			if _, args, is := strings.Cut(line, "image-catalog "+verb.Name()); is {
				found++
				for _, flag := range regexp.MustCompile(`--[a-z-]+`).FindAllString(strings.Split(args, "|")[0], -1) {
					is := verb.Flags().Lookup(flag[2:]) != nil || verb.InheritedFlags().Lookup(flag[2:]) != nil
					assert.True(t, is, "%s: %s", verb.Name(), flag)
				}
			}
		}
		assert.Positive(t, found, verb.Name())
	}
}
