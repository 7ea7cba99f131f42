// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"encoding/json"
	"runtime"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// run runs a program with a verb check, and returns what it has written.
func run(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	output := ""
	cmd := &cobra.Command{
		Use: "agent", SilenceErrors: true, SilenceUsage: true, SuggestionsMinimumDistance: 2, Args: NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(
		WithOutput(&cobra.Command{Use: "check", Args: NoArgs, RunE: func(*cobra.Command, []string) error {
			out.WriteString(output)
			return nil
		}}, &output),
		VersionCommand(&out, "agent", "1.2", func(v any) error { return PrintJSON(&out, v) }),
	)
	Strict(cmd)
	cmd.SetFlagErrorFunc(FlagError)
	cmd.Flags().Bool("about", false, "")
	SetArgs(cmd, args)
	cmd.SetOut(&out)
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

// What nothing looks at is a mistake: cobra itself would print something else and exit with 0.
func TestMistakesInTheArgumentsAreUsageErrors(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		`unknown command "chekc", did you mean "check"?`:     {"chekc"},
		`unknown command "xyz"`:                              {"xyz"},
		`unknown command "zyx"`:                              {"zyx", "--output", "json"}, // and not the flag of the verb
		`unknown command "xzy"`:                              {"--output", "json", "xzy"},
		`unknown command "yxz"`:                              {"--about", "--output=json", "-o", "json", "yxz"},
		`unknown command "yzx"`:                              {"--zyx", "json", "--", "yzx"},
		`unknown command "zxy"`:                              {"completion", "--output", "json", "zxy"},
		`agent check has no flag --about, only agent has it`: {"--about", "check"},
		`unknown flag: --output`:                             {"--output", "json"},
		`unknown flag: --xyz`:                                {"check", "--xyz"},
		`unknown flag: --zyx`:                                {"--zyx"},
		`agent check takes no argument "now"`:                {"check", "now"},
		`agent version takes no argument "now"`:              {"version", "now"},
		`agent check takes no argument "too"`:                {"help", "check", "too"},
		`agent completion bash takes no argument "too"`:      {"completion", "bash", "too"},
		`unknown command "tcsh"`:                             {"completion", "tcsh"},
		`--output "yaml": want text or json`:                 {"check", "--output", "yaml"},
	} {
		_, err := run(t, args...)
		require.EqualError(t, err, want)
		assert.True(t, IsUsage(err), want)
	}
	assert.False(t, IsUsage(Exit(2)))
	assert.EqualError(t, Exit(2), "exit 2")
}

func TestOutputIsTextOrJSON(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{"text": {"check"}, "json": {"check", "-o", "json"}} {
		text, err := run(t, args...)
		require.NoError(t, err)
		assert.Equal(t, want, text)
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	text, err := run(t, "version")
	require.NoError(t, err)
	assert.Equal(t, "agent 1.2 ("+runtime.Version()+", "+runtime.GOOS+"/"+runtime.GOARCH+")\n", text)
	text, err = run(t, "version", "--output", "json")
	require.NoError(t, err)
	var v Version
	require.NoError(t, json.Unmarshal([]byte(text), &v))
	assert.Equal(t, "1.2", v.Version)
}
