// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/fleet"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/face/api"
	"github.com/kubic-project/image-update-agent/internal/face/cli"
	"github.com/kubic-project/image-update-agent/internal/face/doctor"
	"github.com/kubic-project/image-update-agent/internal/face/filerender"
	"github.com/kubic-project/image-update-agent/internal/face/statuspage"
	"github.com/kubic-project/image-update-agent/internal/node/config"
	"github.com/kubic-project/image-update-agent/internal/registry/registryhost"
	"github.com/kubic-project/image-update-agent/tags"
	"github.com/kubic-project/image-update-agent/tools/manpage"
)

// The pages as `make install` makes them.
const (
	page8       = "../../docs/man/image-update-agent.8.md"
	pageJSON    = "../../docs/man/image-update-agent-json.5.md"
	pageDBus    = "../../docs/man/image-update-agent-dbus.5.md"
	page5       = "../../docs/man/image-update-agent.yaml.5.md"
	shippedFile = "../../packaging/config.yaml"
)

// ends runs a verb, and returns its exit code and what it prints.
func ends(t *testing.T, args ...string) (code int, out, errs string) {
	t.Helper()
	var o, e bytes.Buffer
	code = execute(t.Context(), args, streams{in: strings.NewReader(""), out: &o, err: &e})
	return code, o.String(), e.String()
}

// put writes files below a directory, by their paths.
func put(t *testing.T, root string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
}

// does runs a verb that must succeed, and returns what it prints.
func does(t *testing.T, args ...string) string {
	t.Helper()
	code, out, errs := ends(t, args...)
	require.Equal(t, 0, code, errs)
	return out
}

// man makes a page as `make install` does, and takes roff's hyphens and fonts away, so that words can be looked for.
func man(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	page, err := manpage.Page(string(text), version, map[string]func() (string, error){
		"verbs": func() (string, error) {
			return manpage.Verbs(func(path ...string) (string, error) { return does(t, append([]string{"help"}, path...)...), nil })
		},
		"settings": func() (string, error) {
			config, err := os.ReadFile(shippedFile)
			require.NoError(t, err)
			return manpage.Settings(string(config))
		},
	})
	require.NoError(t, err)
	return strings.NewReplacer(`\-`, "-", `\fB`, "", `\fI`, "", `\fR`, "", `\fP`, "", `\&`, "").Replace(string(page))
}

func TestThePageHasEveryVerbAndFlag(t *testing.T) {
	t.Parallel()
	page := man(t, page8)
	root := (&app{}).command()
	verbs, flags := 0, 0
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, flag := range regexp.MustCompile(`--[a-z-]+`).FindAllString(cmd.LocalFlags().FlagUsages(), -1) {
			assert.Contains(t, page, flag, cmd.CommandPath())
			flags++
		}
		for _, verb := range cmd.Commands() {
			if verb.Name() == "help" || verb.Name() == "completion" {
				continue // cobra's own
			}
			if verb.Hidden {
				assert.NotRegexp(t, `(?m)^\.SS `+verb.Name()+`\b`, page)
				continue
			}
			verbs++
			path := strings.TrimPrefix(verb.CommandPath(), root.Name()+" ")
			assert.Regexp(t, `(?m)^\.SS `+regexp.QuoteMeta(path)+`( |$)`, page)
			walk(verb)
		}
	}
	walk(root)
	assert.Greater(t, verbs, 15, "the walk must see the verbs")
	assert.Greater(t, flags, 15, "and their flags")
	assert.Contains(t, page, ".SS completion\n")
}

// What programs read, and what a tired admin looks for.
func TestThePageHasEveryWordOfTheInterface(t *testing.T) {
	t.Parallel()
	pages := []string{man(t, page8), man(t, pageJSON)}
	var codes []string
	for _, code := range []int{exitDone, exitFailed, exitUsage, exitNothing, exitHeld, exitTimeout} {
		codes = append(codes, strconv.Itoa(code))
	}
	for section, words := range map[string][]string{
		"STATUS":      constants(t, "State", agentDir),
		"HOLDS":       status.HoldNames(),
		"REFUSALS":    constants(t, "Rule", agentDir),
		"REASONS":     constants(t, "Kind", agentDir),
		"ERRORS":      constants(t, "Error", agentDir),
		"RESULTS":     constants(t, "Result", agentDir),
		"EXIT STATUS": codes,
		"ENVIRONMENT": {"UPDATE_POLLING_INTERVAL", "DBUS_SYSTEM_BUS_ADDRESS"},
		"GRAINS": {
			"image_update_available", "image_update_state", "image_update_reason", "image_update_count", "image_updates",
			"image_updates_not_allowed",
			"tx_update_reboot_needed", "image_update_reboot_asked", "image_update_reboot_done",
		},
	} {
		at := slices.IndexFunc(pages, func(page string) bool { return strings.Contains(page, "\n.SH "+section+"\n") })
		require.NotEqual(t, -1, at, section)
		_, rest, _ := strings.Cut(pages[at], "\n.SH "+section+"\n")
		rest, _, _ = strings.Cut(rest, "\n.SH ")
		assert.Greater(t, len(words), 1, section)
		for _, word := range words {
			assert.Contains(t, rest, ".TP\n"+word+"\n", section)
		}
	}
}

// The object on the bus, as its introspection has it: each word with its types, errors included.
func TestThePageHasTheObjectOnTheBus(t *testing.T) {
	t.Parallel()
	section := man(t, pageDBus)
	text, err := os.ReadFile("../../internal/face/api/" + api.BusName + ".xml")
	require.NoError(t, err)
	type argument struct {
		Name      string `xml:"name,attr"`
		Type      string `xml:"type,attr"`
		Direction string `xml:"direction,attr"`
	}
	type member struct {
		argument

		Args []argument `xml:"arg"`
	}
	var node struct {
		Interfaces []struct {
			Name       string   `xml:"name,attr"`
			Properties []member `xml:"property"`
			Methods    []member `xml:"method"`
			Signals    []member `xml:"signal"`
		} `xml:"interface"`
	}
	require.NoError(t, xml.Unmarshal(text, &node))
	face := node.Interfaces[0]
	require.Equal(t, api.BusName, face.Name)
	words := slices.Concat(face.Properties, face.Methods, face.Signals)
	assert.Len(t, words, 34)
	for _, m := range words {
		var args []string
		for _, a := range m.Args {
			if a.Direction != "out" {
				args = append(args, a.Type+" "+a.Name)
			}
		}
		assert.Contains(t, section, ".TP\n"+m.Name+" ("+m.Type+strings.Join(args, ", ")+")\n")
	}
	for _, name := range []string{
		api.BusErrorFailed, api.BusErrorUnknownImage, api.BusErrorInvalidArgs, api.BusErrorNothingToDo, api.BusErrorHeld,
	} {
		assert.Contains(t, section, ".TP\n"+name+"\n")
	}
}

// The tables of states, holds and metrics are those of the code.
func TestThePagesHaveTheTablesOfTheCode(t *testing.T) {
	t.Parallel()
	metrics, err := os.ReadFile("../../internal/face/metrics/testdata/full.txt")
	require.NoError(t, err)
	var names []string
	for _, kind := range status.StateKinds() {
		names = append(names, string(kind.State))
	}
	assert.ElementsMatch(t, constants(t, "State", agentDir), names, "each state has a row")
	for _, page := range []string{page8, "../../docs/status.md"} {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		want, err := manpage.WithTables(string(text), string(metrics))
		require.NoError(t, err, page)
		assert.Equal(t, want, string(text), "%s: a table has changed: make tables", page)
	}
}

// agentDir has the words of the interface.
const agentDir = "../../agent"

// constants are the values of the exported string constants of a directory, and of those in it, whose names begin
// with a word, as in HoldBusy: read from its source, so that none is left out.
func constants(t *testing.T, word string, dirs ...string) []string {
	t.Helper()
	var out []string
	for _, dir := range dirs {
		files, err := filepath.Glob(dir + "/*.go")
		require.NoError(t, err)
		below, err := filepath.Glob(dir + "/*/*.go")
		require.NoError(t, err)
		found := len(out)
		for _, file := range append(files, below...) {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			named := regexp.MustCompile(`(?m)^(?:const|\t) ?` + word + `[A-Z]\w* +(?:\w+ +)?= "(.+?)"`)
			for _, match := range named.FindAllStringSubmatch(string(text), -1) {
				out = append(out, match[1])
			}
		}
		assert.Greater(t, len(out), found, "%s: %s", dir, word)
	}
	return out
}

// views are what each verb prints for programs.
var views = map[string][]any{
	"status, check, run --once": {status.Status{}},
	"plan":                      {statuspage.PlanView{}},
	"preview":                   {previewed{}},
	"apply, rollback":           {statuspage.Outcome{}},
	"changes":                   {statuspage.ImageChanges{}},
	"history":                   {status.HistoryEntry{}},
	"hold, resume":              {statuspage.Held{}, statuspage.Resumed{}},
	"local-registry enable, local-registry disable": {registryhost.ChangeView{}},
	"doctor":                  {doctor.Finding{}},
	"config show":             {config.Entry{}},
	"config check":            {checkedConfig{}},
	"local-registry show":     {registryhost.View{}},
	"put-back":                {putBackView{}},
	"render":                  {statuspage.BootStep{}},
	"version":                 {cli.Version{}},
	"catalog show":            {statuspage.CatalogView{}},
	"catalog forget":          {},
	"lock show, lock release": {fleet.LockStatus{}},
	"tags parse, tags sort":   {parsedTag{}},
	"tags newest":             {newestTag{}},
	"tags explain":            {tags.Explanation{}},
	"manifests images":        {imageLine{}},
	"manifests render":        {filerender.File{}},
}

// Each field of each verb's JSON, and each verb that has any.
func TestThePageHasEveryFieldForPrograms(t *testing.T) {
	t.Parallel()
	_, section, found := strings.Cut(man(t, pageJSON), "\n.SH COMMANDS\n")
	require.True(t, found)
	section, _, _ = strings.Cut(section, "\n.SH ")
	verbs, texts := map[string]bool{}, map[string]string{}
	for title := range views {
		_, text, found := strings.Cut(section, ".SS "+title+"\n")
		require.True(t, found, title)
		text, _, _ = strings.Cut(text, "\n.SS ")
		for verb := range strings.SplitSeq(title, ", ") {
			texts[verb] = text
		}
	}
	for title, structs := range views {
		verb, _, _ := strings.Cut(title, ", ")
		text := texts[verb]
		for _, same := range regexp.MustCompile(`(?m)\bas (?:in )?(status|history|lock show)\b`).FindAllStringSubmatch(text, -1) {
			text += texts[same[1]] // described there
		}
		for _, s := range structs {
			for _, field := range fieldsOf(reflect.TypeOf(s)) {
				assert.Regexp(t, `\b`+field+`\b`, text, title)
			}
		}
		for verb := range strings.SplitSeq(title, ", ") {
			verbs["image-update-agent "+strings.TrimSuffix(verb, " --once")] = true
		}
	}
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		assert.Equal(t, cmd.Flags().Lookup("output") != nil, verbs[cmd.CommandPath()], cmd.CommandPath())
		for _, verb := range cmd.Commands() {
			walk(verb)
		}
	}
	walk((&app{}).command())
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
		if !field.IsExported() && !field.Anonymous {
			continue
		}
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "-" {
			continue
		}
		all = append(append(all, name), fieldsOf(field.Type)...)
	}
	return all
}

func TestThePageHasEverySetting(t *testing.T) {
	t.Parallel()
	page := man(t, page5)
	var settings []struct{ Key string }
	require.NoError(t, json.Unmarshal([]byte(does(t, "config", "show", "--root", t.TempDir(), "--output", "json")), &settings))
	assert.Greater(t, len(settings), 30)
	for _, s := range settings {
		key, _, _ := strings.Cut(s.Key, "[")
		assert.Regexp(t, `(?m)^\.TP\n`+regexp.QuoteMeta(key)+`(: .*)?$`, page)
	}
}
