// SPDX-License-Identifier: Apache-2.0

package grains

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"os/exec"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// python is Debian's and SUSE's; it needs python3-yaml.
const python3 = "/usr/bin/python3"

// salt is a Python process that reads and writes grains files as Salt does.
type salt struct {
	mu     sync.Mutex
	input  io.WriteCloser
	output *bufio.Reader
}

func startSalt(t *testing.T) *salt {
	t.Helper()
	child := exec.Command(python3, "testdata/salt_loader.py")
	input, err := child.StdinPipe()
	require.NoError(t, err)
	output, err := child.StdoutPipe()
	require.NoError(t, err)
	var problems bytes.Buffer
	child.Stderr = &problems
	require.NoError(t, child.Start(), "the tests need python3 and python3-yaml")
	t.Cleanup(func() {
		assert.NoError(t, input.Close())
		assert.NoError(t, child.Wait(), "%s", problems.String())
	})
	return &salt{input: input, output: bufio.NewReader(output)}
}

func (s *salt) ask(t require.TestingT, question map[string]any, answer any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	line, err := json.Marshal(question)
	require.NoError(t, err)
	_, err = s.input.Write(append(line, '\n'))
	require.NoError(t, err)
	reply, err := s.output.ReadBytes('\n')
	require.NoError(t, err, "the tests need python3-yaml with libyaml")
	require.NoError(t, json.Unmarshal(reply, answer))
}

// value is a Python value: one key, the name of the type.
type value map[string]json.RawMessage

// reading is Salt's result for a file: grains by the JSON of key and value, in order, or the error for which it would
// drop them all.
type reading struct {
	Value value
	Error string
}

// load reads data with both of PyYAML's parsers; either may be Salt's.
func (s *salt) load(t require.TestingT, data []byte) (libyaml, pure reading) {
	var answer struct{ Libyaml, Pure reading }
	s.ask(t, map[string]any{"load": append([]byte{}, data...)}, &answer)
	return answer.Libyaml, answer.Pure
}

// setval runs grains.setval on the file, not atomically, as Salt does.
func (s *salt) setval(t require.TestingT, path, key string, value any) (problem string) {
	var answer struct{ Error string }
	s.ask(t, map[string]any{"setval": []any{path, key, value}}, &answer)
	return answer.Error
}

// split separates the agent's keys from the others. An empty file has no grains.
func (r reading) split(t require.TestingT) (own map[string]value, foreign []string) {
	require.Empty(t, r.Error)
	own = map[string]value{}
	if _, null := r.Value["NoneType"]; null {
		return own, nil
	}
	require.Contains(t, r.Value, "map")
	for _, pair := range r.pairs(t) {
		if key := pair[0].text(t); slices.Contains(ownKeys, key) {
			own[key] = pair[1]
			continue
		}
		text, err := json.Marshal(pair)
		require.NoError(t, err)
		foreign = append(foreign, string(text))
	}
	return own, foreign
}

// requireSays checks that Salt reads exactly this grain.
func requireSays(t require.TestingT, g Grain, own map[string]value) {
	g, err := g.normalized()
	require.NoError(t, err)
	updates := []any{}
	for _, u := range g.Updates {
		pairs := map[string]any{}
		for i, v := range u.values() {
			if !isLeftOut(updateFields[i], v) {
				pairs[updateFields[i]] = map[string]any{"str": v}
			}
		}
		updates = append(updates, pairs)
	}
	truth := map[bool]string{true: "True", false: "False"}[g.Available]
	keys := 4
	if g.Reason != "" {
		keys++
		require.Equal(t, map[string]any{"str": g.Reason}, plainJSON(t, own[keyReason]))
	}
	if len(g.NotAllowed) > 0 {
		keys++
		var items []any
		for _, n := range g.NotAllowed {
			pairs := map[string]any{}
			for i, v := range n.values() {
				pairs[notAllowedFields[i]] = map[string]any{"str": v}
			}
			items = append(items, pairs)
		}
		requireList(t, items, own[keyNotAllowed])
	}
	require.Len(t, own, keys)
	require.Equal(t, map[string]any{"bool": truth}, plainJSON(t, own[keyAvailable]))
	require.Equal(t, map[string]any{"str": g.State}, plainJSON(t, own[keyState]))
	require.Equal(t, map[string]any{"int": strconv.Itoa(g.Count)}, plainJSON(t, own[keyCount]))
	requireList(t, updates, own[keyUpdates])
}

// requireList checks that Salt reads these mappings.
func requireList(t require.TestingT, updates []any, own value) {
	got, ok := plainJSON(t, own)["list"].([]any)
	require.True(t, ok, "%s", own)
	require.Len(t, got, len(updates))
	for i := range got {
		fields := map[string]any{}
		for _, pair := range got[i].(map[string]any)["map"].([]any) {
			key := pair.([]any)[0].(map[string]any)["str"].(string)
			fields[key] = pair.([]any)[1]
		}
		require.Equal(t, updates[i], fields)
	}
}

func plainJSON(t require.TestingT, v value) map[string]any {
	text, err := json.Marshal(v)
	require.NoError(t, err)
	var plain map[string]any
	require.NoError(t, json.Unmarshal(text, &plain))
	return plain
}
