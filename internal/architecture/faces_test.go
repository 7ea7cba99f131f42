// SPDX-License-Identifier: Apache-2.0

package architecture

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/status"
)

// Each field of the status document is in each output that can show it: the bus and the metrics by its tags, the status
// for people and the Cockpit page by their code; TestThePageHasEveryFieldForPrograms checks the manual page. Fields
// that an output omits on purpose are listed in testdata/faces.txt; this test names each other omission.
func TestEveryFieldIsOnItsFaces(t *testing.T) {
	t.Parallel()
	text, page := sources(t, "../face/statuspage/*.go"), sources(t, "../../cockpit/*.js")
	onBus := reachable(reflect.TypeFor[status.Status](), "dbus")
	for _, made := range []any{status.ImageStatus{}, status.Hold{}, status.Progress{}} { // lists that internal/face/api makes
		onBus[reflect.TypeOf(made)] = true
	}
	var lacks []string
	for of := range reachable(reflect.TypeFor[status.Status](), "json") {
		for field := range of.Fields() {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			var missed []string
			miss := func(face string, is bool) {
				if is {
					missed = append(missed, face)
				}
			}
			_, tagged := field.Tag.Lookup("dbus")
			miss("bus", onBus[of] && !tagged)
			_, tagged = field.Tag.Lookup("metric")
			miss("metrics", isNumber(field.Type) && !tagged)
			miss("text", !regexp.MustCompile(`\.`+field.Name+`\b`).MatchString(text))
			miss("page", !regexp.MustCompile(`\b`+name+`\b`).MatchString(page))
			if len(missed) > 0 && name != "-" && name != "" {
				lacks = append(lacks, of.String()+"."+name+": "+strings.Join(missed, " "))
			}
		}
	}
	slices.Sort(lacks)
	const table = "testdata/faces.txt"
	if os.Getenv("IUA_UPDATE") != "" {
		require.NoError(t, os.WriteFile(table, []byte(strings.Join(lacks, "\n")+"\n"), 0o600))
	}
	want, err := os.ReadFile(table)
	require.NoError(t, err)
	assert.Equal(t, strings.Split(strings.TrimSpace(string(want)), "\n"), lacks,
		"show the field there, or list it in %s as what these faces leave out (IUA_UPDATE=1 writes it)", table)
}

func sources(t *testing.T, pattern string) string {
	t.Helper()
	names, err := filepath.Glob(pattern)
	require.NoError(t, err)
	var all strings.Builder
	for _, name := range names {
		if base := filepath.Base(name); !strings.HasSuffix(base, "_test.go") && !strings.HasPrefix(base, "po.") {
			text, err := os.ReadFile(name)
			require.NoError(t, err)
			all.Write(text)
		}
	}
	require.NotZero(t, all.Len(), pattern)
	return all.String()
}

// reachable returns the structs of the document that fields with a tag lead to.
func reachable(from reflect.Type, tag string) map[reflect.Type]bool {
	found := map[reflect.Type]bool{}
	var walk func(reflect.Type)
	walk = func(of reflect.Type) {
		for of.Kind() == reflect.Pointer || of.Kind() == reflect.Slice {
			of = of.Elem()
		}
		if of.Kind() != reflect.Struct || found[of] || !strings.Contains(of.PkgPath(), "image-update-agent") {
			return
		}
		found[of] = true
		for field := range of.Fields() {
			if value, is := field.Tag.Lookup(tag); is && value != "-" {
				walk(field.Type)
			}
		}
	}
	walk(from)
	return found
}

// isNumber reports whether a field can be a metric.
func isNumber(of reflect.Type) bool {
	if of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	return of == reflect.TypeFor[time.Time]() || of.Kind() == reflect.Bool || of.Kind() >= reflect.Int && of.Kind() <= reflect.Float64
}
