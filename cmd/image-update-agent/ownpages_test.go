// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// smapsOf returns a mapping of /usr/bin/p in proc_pid_smaps(5), with changed lines.
func smapsOf(head string, replace ...string) string {
	text := head + `
Size:                  8 kB
Rss:                   8 kB
Shared_Clean:          8 kB
Shared_Dirty:          0 kB
Private_Clean:         0 kB
Private_Dirty:         0 kB
Referenced:            8 kB
Anonymous:             0 kB
FilePmdMapped:         0 kB
Swap:                  0 kB
THPeligible:           0
VmFlags: rd ex mr mw me sd
`
	return strings.NewReplacer(replace...).Replace(text)
}

func TestUnchanged(t *testing.T) {
	t.Parallel()
	const head = "00400000-00402000 r-xp 00000000 fe:01 42    /usr/bin/p"
	is := []span{{0x400000, 0x402000}}
	for name, c := range map[string]struct {
		smaps string
		want  []span
	}{
		"text":                {smapsOf(head), is},
		"constants":           {smapsOf(strings.Replace(head, "r-xp", "r--p", 1)), is},
		"data":                {smapsOf(strings.Replace(head, "r-xp", "rw-p", 1)), nil},
		"shared":              {smapsOf(strings.Replace(head, "r-xp", "r--s", 1)), nil},
		"not on the disk yet": {smapsOf(head, "Private_Dirty:         0", "Private_Dirty:         4"), is},
		"relocated":           {smapsOf(head, "Anonymous:             0", "Anonymous:             4"), nil},
		"relocated, swapped":  {smapsOf(head, "Swap:                  0", "Swap:                  4"), nil},
		"an older kernel":     {smapsOf(head, "Anonymous:", "Anon:"), nil},
		"of another file":     {smapsOf(head + "2"), nil},
		"of the heap":         {smapsOf("00400000-00402000 r--p 00000000 00:00 0"), nil},
		"of a longer path":    {smapsOf(strings.Replace(head, "/usr/bin/p", "/x/usr/bin/p", 1)), nil},
		"no addresses":        {smapsOf("x-y r-xp 00000000 fe:01 42 /usr/bin/p"), nil},
		"torn":                {head, nil},
		"two":                 {smapsOf(head, "Swap:                  0", "Swap:                  4") + smapsOf(head), is},
		"the first of two":    {smapsOf(head) + smapsOf("00600000-00602000 r--p 00000000 fe:01 42    /usr/lib/q"), is},
		"nothing":             {"", nil},
		"of a replaced file":  {smapsOf(head + " (deleted)"), nil},
	} {
		assert.Equal(t, c.want, unchanged([]byte(c.smaps), "/usr/bin/p"), name)
	}
	assert.Equal(t, is, unchanged([]byte(smapsOf(head+" (deleted)")), "/usr/bin/p (deleted)"))
}

// residentOwn returns the kB of the program's own unchanged mappings in memory.
func residentOwn(t *testing.T) int {
	t.Helper()
	own, err := os.Readlink("/proc/self/exe")
	require.NoError(t, err)
	smaps, err := os.ReadFile("/proc/self/smaps")
	require.NoError(t, err)
	require.NotEmpty(t, unchanged(smaps, own))
	sum := 0
	for _, s := range unchanged(smaps, own) {
		found := regexp.MustCompile(fmt.Sprintf(`(?m)^0*%x-[^\n]*\nSize:[^\n]*\n(?:\w+PageSize:[^\n]*\n)*Rss: +(\d+) kB`, s.from)).FindSubmatch(smaps)
		require.NotNil(t, found, "%x", s.from)
		kb, err := strconv.Atoi(string(found[1]))
		require.NoError(t, err)
		sum += kb
	}
	return sum
}

// Goroutines that use code, constants and types of the program all the time notice nothing.
func TestForgettingOwnPagesUnderLoad(t *testing.T) {
	before := residentOwn(t)
	forgetOwnPages()
	assert.Less(t, residentOwn(t), before/2, "of %d kB", before)
	work := func() string {
		text, err := json.Marshal(map[string]any{"b": []any{1, "x", nil, 1.5}, "a": map[string]int{"z": 1}})
		if err != nil {
			return err.Error()
		}
		matched := regexp.MustCompile(`[a-z]"`).ReplaceAllString(string(text), "-")
		return fmt.Sprintf("%x %s %v", sha256.Sum256([]byte(matched)), matched, span{1, 2})
	}
	want := work()
	var workers sync.WaitGroup
	for range 8 {
		workers.Go(func() {
			for range 300 {
				if got := work(); got != want {
					t.Errorf("%s: want %s", got, want)
					return
				}
			}
		})
	}
	ended := make(chan struct{})
	go func() { workers.Wait(); close(ended) }()
	for {
		forgetOwnPages()
		select {
		case <-ended:
			return
		default:
		}
	}
}
