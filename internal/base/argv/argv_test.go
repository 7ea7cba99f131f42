// SPDX-License-Identifier: Apache-2.0

package argv

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestParse(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]struct {
		flags Flags
		rest  []string
	}{
		"":                   {Flags{}, nil},
		"--a=1 -b=2 --c 3":   {Flags{"a": {"1"}, "b": {"2"}, "c": {"3"}}, nil},
		"--a=1 --a 2":        {Flags{"a": {"1", "2"}}, nil},
		"--on --a --b":       {Flags{"on": {""}, "a": {""}, "b": {""}}, nil},
		"--valued --b --c":   {Flags{"valued": {"--b"}, "c": {""}}, nil},
		"server -a x y":      {Flags{"a": {"x"}}, []string{"server", "y"}},
		"--a=b=c --a= -- -":  {Flags{"a": {"b=c", ""}}, []string{"--", "-"}},
		"--=x":               {Flags{}, []string{"--=x"}},
		"--last":             {Flags{"last": {""}}, nil},
		"--valued":           {Flags{"valued": {""}}, nil},
		"--pod_manifest_a=_": {Flags{"pod_manifest_a": {"_"}}, nil},
	} {
		flags, rest := Parse(strings.Fields(line), []string{"valued"})
		assert.Equal(t, want.flags, flags, line)
		assert.Equal(t, want.rest, rest, line)
	}
	assert.Equal(t, []string{"--a-b=c_d", "-e_f", "g_h", "--i-j"}, Dashed([]string{"--a_b=c_d", "-e_f", "g_h", "--i_j"}))
	assert.Equal(t, "2", Flags{"a": {"1", "2"}}.Last("a"))
	assert.Empty(t, Flags{}.Last("a"))
}
