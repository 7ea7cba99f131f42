// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var velum = Release{Image: "r.io/velum", Tag: "2", Digest: digest.FromString("velum:2").String()}

// server answers each query by its beginning.
type server map[string][]Sample

func (s server) Query(_ context.Context, expr string) ([]Sample, error) {
	for begin, out := range s {
		if strings.HasPrefix(expr, begin) {
			return out, nil
		}
	}
	return nil, errors.New("prometheus: away")
}

func sample(value float64, labels ...string) Sample {
	out := Sample{Value: value, Labels: map[string]string{"repository": velum.Image}}
	for _, l := range labels {
		name, text, _ := strings.Cut(l, "=")
		out.Labels[name] = text
	}
	return out
}

func TestAsk(t *testing.T) {
	t.Parallel()
	is, other := "digest="+velum.Digest, "digest=sha256:0"
	s := server{
		"count by (repository, digest, state)": {
			sample(9990, is, "state=running"), sample(2, is, "state=failed"), sample(4, is, "state=staged"),
			sample(6, other, "state=running"),
			{Labels: map[string]string{"repository": "r.io/db"}, Value: 7},
		},
		"count by (repository) (": {sample(9998)},
		"group by (instance, repository, digest) (image_update_agent_release_info{catalog=\"r.io/catalog:prod\",state=\"failed\"})": {
			sample(1, is, "instance=n2"), sample(1, is, "instance=n1"), sample(1, other, "instance=n3"),
		},
		"group by (instance, repository) (last_over_time(":          {sample(1, "instance=n8"), sample(1, "instance=n9")},
		"(group by (instance, repository, digest) (last_over_time(": {sample(1, is, "instance=n9"), sample(1, other, "instance=n8")},
	}
	got, err := Ask(t.Context(), s, "r.io/catalog:prod", []Release{velum})
	require.NoError(t, err)
	assert.Equal(t, []Standing{{
		Image: velum.Image, Tag: velum.Tag, Digest: velum.Digest, Nodes: 10_000, Running: 9990, Staged: 4, Failed: 2, Others: 2,
		Silent: 2, FailedNodes: []string{"n1", "n2"}, SilentNodes: []string{"n8", "n9"}, LostNodes: []string{"n9"},
	}}, got)
	assert.Equal(t, "r.io/velum:2: 9,990 of 10,000 nodes run it, 2 failed (n1, n2), 1 lost (n9), 4 staged, 2 without it, 1 silent (n8)",
		got[0].Sentence())

	delete(s, "(group by (instance, repository, digest) (last_over_time(")
	_, err = Ask(t.Context(), s, "r.io/catalog:prod", []Release{velum})
	assert.ErrorContains(t, err, "away", "without one answer there is none")
}

func TestStanding(t *testing.T) {
	t.Parallel()
	require.ErrorIs(t, Standing{}.Known(), ErrNoNode)
	require.ErrorIs(t, Standing{Nodes: 3, Silent: 3}.Known(), ErrNoNode)
	require.NoError(t, Standing{Nodes: 3, Silent: 2}.Known())
	assert.Zero(t, Standing{Nodes: 10, Silent: 9, SilentNodes: []string{"n1"}}.Bad(), "it was silent before it began")
	assert.Equal(t, 1, Standing{FailedNodes: []string{"n1"}}.Bad())
	assert.Equal(t, 1, Standing{FailedNodes: []string{"n1"}, LostNodes: []string{"n1"}}.Bad(), "it failed and was lost since")
	assert.Equal(t, 2, Standing{FailedNodes: []string{"n1"}, LostNodes: []string{"n2"}}.Bad())
	assert.True(t, Standing{Nodes: 20, Running: 19}.IsDone(95))
	assert.False(t, Standing{Nodes: 20, Running: 18}.IsDone(95))
	assert.False(t, Standing{}.IsDone(0))
}

func TestSentence(t *testing.T) {
	t.Parallel()
	var all []string
	for n := range 1234 {
		all = append(all, fmt.Sprintf("n%04d", n))
	}
	text := Standing{Image: "r", Tag: "1", Nodes: 1234, Failed: 1234, FailedNodes: all}.Sentence()
	assert.Equal(t, "r:1: 0 of 1,234 nodes run it, 1,234 failed (n0000, n0001, n0002, n0003, n0004, n0005, n0006, n0007, "+
		"n0008, n0009 and 1,224 more)", text)
	assert.Equal(t, "r:1: 1 of 1 node run it", Standing{Image: "r", Tag: "1", Nodes: 1, Running: 1}.Sentence())
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567"} {
		assert.Equal(t, want, thousands(n))
	}
}
