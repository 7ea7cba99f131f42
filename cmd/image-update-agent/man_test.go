// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/internal/reboot"
	"github.com/kubic-project/image-update-agent/systemd"
)

// The pages as `make install` makes them.
const (
	page8       = "../../docs/man/image-update-agent.8.md"
	page5       = "../../docs/man/image-update-agent.yaml.5.md"
	shippedFile = "../../packaging/config.yaml"
)

// does runs a verb that must succeed, and returns what it prints.
func does(t *testing.T, args ...string) string {
	t.Helper()
	var out, errs bytes.Buffer
	code := execute(t.Context(), args, streams{in: strings.NewReader(""), out: &out, err: &errs})
	require.Equal(t, 0, code, errs.String())
	return out.String()
}

// man makes a page and takes roff's hyphens and fonts away, so that words can be looked for.
func man(t *testing.T, args ...string) string {
	t.Helper()
	return strings.NewReplacer(`\-`, "-", `\fB`, "", `\fI`, "", `\fR`, "").Replace(does(t, append([]string{"man"}, args...)...))
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
			if verb.Hidden {
				assert.NotRegexp(t, `(?m)^\.SS "`+verb.Name()+`[ "]`, page)
				continue
			}
			verbs++
			path := strings.TrimPrefix(verb.CommandPath(), root.Name()+" ")
			assert.Regexp(t, `(?m)^\.SS "`+regexp.QuoteMeta(path)+`[ "]`, page)
			walk(verb)
		}
	}
	walk(root)
	assert.Greater(t, verbs, 15, "the walk must see the verbs")
	assert.Greater(t, flags, 15, "and their flags")
	assert.Contains(t, page, `.SS "completion`)
}

// What programs read, and what a tired admin looks for.
func TestThePageHasEveryWordOfTheInterface(t *testing.T) {
	t.Parallel()
	page := man(t, page8)
	words := []string{
		"UPDATE_POLLING_INTERVAL", "DBUS_SYSTEM_BUS_ADDRESS", "image_update_available",
		"image_update_state", "image_update_reason", "image_update_count", "image_updates",
	}
	for _, state := range []agent.State{
		agent.StateApplying, agent.StateFailed, agent.StateHeld, agent.StateStale, agent.StateStaged, agent.StateCurrent,
	} {
		words = append(words, string(state))
	}
	words = append(words, agent.HoldWithheld, agent.HoldBusy, agent.HoldUnmanaged, agent.HoldEdited, agent.HoldRefused,
		agent.HoldAsked, agent.HoldDisk, reboot.HoldReboot, reboot.HoldSnapshot, systemd.HoldKubelet)
	for _, code := range []int{exitDone, exitFailed, exitUsage, exitNothing, exitHeld} {
		words = append(words, strconv.Itoa(code))
	}
	// A test of internal/metrics holds this list to the code.
	metrics, err := os.ReadFile("../../docs/metrics.md")
	require.NoError(t, err)
	named := regexp.MustCompile("(?m)^\\| `(image_update_agent_[a-z_]+)").FindAllStringSubmatch(string(metrics), -1)
	assert.Greater(t, len(named), 5)
	for _, metric := range named {
		words = append(words, metric[1])
	}
	for _, word := range words {
		assert.Contains(t, page, ".TP\n"+word+"\n")
	}
}

func TestThePageHasEverySetting(t *testing.T) {
	t.Parallel()
	page := man(t, "--settings", shippedFile, page5)
	var settings []struct{ Key string }
	require.NoError(t, json.Unmarshal([]byte(does(t, "config", "show", "--root", t.TempDir(), "--output", "json")), &settings))
	assert.Greater(t, len(settings), 30)
	for _, s := range settings {
		key, _, _ := strings.Cut(s.Key, "[")
		assert.Regexp(t, `(?m)^\.TP\n`+regexp.QuoteMeta(key)+`(: .*)?$`, page)
	}
}

func TestManSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	odd := filepath.Join(dir, "odd.md")
	require.NoError(t, os.WriteFile(odd, []byte("# a(8)\n\n| a |\n"), 0o600))
	noSettings := filepath.Join(dir, "config.yaml")
	require.NoError(t, os.WriteFile(noSettings, []byte("# nothing\n"), 0o600))
	for name, c := range map[string]struct {
		args []string
		code int
		want string
	}{
		"no file":       {[]string{"man"}, exitUsage, "the Markdown is missing"},
		"absent":        {[]string{"man", filepath.Join(dir, "none.md")}, exitFailed, "none.md: no such file"},
		"odd":           {[]string{"man", odd}, exitFailed, "odd.md: markdown: line 3"},
		"no settings":   {[]string{"man", "--settings", noSettings, page5}, exitFailed, "there are none"},
		"settings gone": {[]string{"man", "--settings", filepath.Join(dir, "none.yaml"), page5}, exitFailed, "none.yaml: no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out, errs bytes.Buffer
			code := execute(t.Context(), c.args, streams{in: strings.NewReader(""), out: &out, err: &errs})
			assert.Equal(t, c.code, code)
			assert.Contains(t, errs.String(), c.want)
			assert.Empty(t, out.String(), "half a page is none")
		})
	}
}
