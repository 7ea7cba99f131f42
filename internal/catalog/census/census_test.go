// SPDX-License-Identifier: Apache-2.0

package census

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var velum = Release{Image: "r.io/velum", Tag: "2", Digest: digest.FromString("velum:2").String()}

// server answers the queries. Rows are INSTANCE or INSTANCE=STATE.
type server struct {
	at                                        float64
	now, known, before, lately, stuck, shared []string
	catalogs                                  []string
	fails                                     string // the beginning of the query that fails
	asked                                     []string
}

func rows(label string, texts ...string) (out []Sample) {
	for _, text := range texts {
		name, state, _ := strings.Cut(text, "=")
		out = append(out, Sample{Labels: map[string]string{label: name, "state": state}, Value: math.NaN()})
	}
	return out
}

func (s *server) Query(_ context.Context, expr string) ([]Sample, error) {
	s.asked = append(s.asked, expr)
	is := func(begin string) bool { return strings.HasPrefix(expr, begin) }
	switch {
	case s.fails != "" && is(s.fails):
		return nil, errors.New("prometheus: away")
	case is("vector(time())"):
		return []Sample{{Value: s.at}}, nil
	case is("group by (instance, state) (image_update_agent_release_info{"):
		return rows("instance", s.now...), nil
	case is("(group by (instance, state) (last_over_time("):
		return rows("instance", s.before...), nil
	case is("group by (instance) (last_over_time("):
		return rows("instance", s.lately...), nil
	case is("group by (instance) (changes("):
		return rows("instance", s.stuck...), nil
	case is("max by (instance) (min_over_time("):
		return rows("instance", s.shared...), nil
	case is("group by (catalog) ("):
		return rows("catalog", s.catalogs...), nil
	}
	return nil, errors.New("unknown query " + expr)
}

func (s *server) Values(_ context.Context, label, selector string, since time.Time) ([]string, error) {
	s.asked = append(s.asked, fmt.Sprint(label, " of ", selector, " since ", since.Unix()))
	if s.fails == "values" {
		return nil, errors.New("prometheus: away")
	}
	return slices.Clone(s.known), nil
}

func TestAsk(t *testing.T) {
	t.Parallel()
	s := &server{
		at: 1795262400,
		// n2 and n6 have two states: two servers scrape them.
		now: []string{
			"n1", "n2", "n3", "n4", "n5", "n6", "n7", "n8", "n9", "n1=running", "n2=failed", "n2=running", "n3=starting",
			"n4=staged", "n5=held", "n6=staged", "n6=running", "n7=offered", "n8=running",
		},
		known: []string{
			"n1", "n2", "n3", "n4", "n5", "n6", "n7", "n8", "n9", "s1", "s2", "s3", "s4", "moved", "of last week",
		},
		before: []string{"s1", "s2", "s3", "s4", "s1=running", "s2=staged", "s3=failed", "s4=running"},
		lately: []string{"s4", "moved"},
		stuck:  []string{"n8", "n9", "another"},
		shared: []string{"another"},
	}
	got, err := Ask(t.Context(), s, "r.io/catalog:prod", []Release{velum})
	require.NoError(t, err)
	assert.Equal(t, []Standing{{
		Image: velum.Image, Tag: velum.Tag, Digest: velum.Digest, Nodes: 13, Running: 3, Starting: 1, Staged: 1, Offered: 1,
		Held: 1, Failed: 1, Others: 1, Silent: 4, FailedNodes: []string{"n2"}, SilentNodes: []string{"s1", "s2", "s3", "s4"},
		LostNodes: []string{"n8", "s1", "s3"}, SharedNodes: []string{},
	}}, got)
	assert.Equal(t, "r.io/velum:2: 3 of 13 nodes run it, 1 failed (n2), 3 lost (n8, s1, s3), 1 starting, 1 staged, 1 not staged yet, "+
		"1 held, 1 without it, 2 silent (s2, s4)", got[0].Sentence())
	assert.NoError(t, got[0].Known())
	all := strings.Join(s.asked, "\n")
	assert.Contains(t, all, `instance of image_update_agent_release_info{catalog="r.io/catalog:prod",repository="r.io/velum"} since 1795176000`)
	assert.Contains(t, all, `,instance=~"s1|s2|s3|s4|moved|of last week"}[1d]`, "a day is read only of those that do not report")

	for _, query := range []string{
		"vector", "group by (instance, state)", "(group", "group by (instance) (last", "group by (instance) (ch", "max", "values",
	} {
		s.fails = query
		_, err = Ask(t.Context(), s, "r.io/catalog:prod", []Release{velum})
		assert.ErrorContains(t, err, "away", "without one answer there is none: %s", query)
	}
}

// What is not known is no number.
func TestAskWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	s := &server{at: math.NaN(), now: []string{"n1"}}
	_, err := Ask(t.Context(), s, "r.io/catalog:prod", []Release{velum})
	require.EqualError(t, err, "the server does not tell its time")

	s = &server{catalogs: []string{"r.io/catalog:prod", "mirror/catalog:prod", ""}}
	_, err = Ask(t.Context(), s, "r.io/catalog:prod", []Release{velum})
	var nothing *NothingError
	require.ErrorAs(t, err, &nothing)
	assert.Equal(t, NothingError{Catalog: "r.io/catalog:prod", Catalogs: []string{"", "mirror/catalog:prod", "r.io/catalog:prod"}}, *nothing)
	s.fails = "group by (catalog)"
	_, err = Ask(t.Context(), s, "r.io/catalog:prod", []Release{velum})
	require.ErrorContains(t, err, "away")

	s = &server{now: []string{"n1", "n1=running", "n2", "n2=running", ""}, shared: []string{"n1", "n1"}}
	list, err := Ask(t.Context(), s, "r.io/catalog:prod", []Release{velum})
	require.NoError(t, err)
	require.EqualError(t, list[0].Known(), "r.io/velum:2: several machines share a label instance (\"\", n1)")

	s = &server{known: []string{"n1"}, before: []string{"n1", "n1=running"}}
	list, err = Ask(t.Context(), s, "r.io/catalog:prod", []Release{velum})
	require.NoError(t, err)
	require.EqualError(t, list[0].Known(), "r.io/velum:2: no node reports the image")
	assert.Equal(t, "r.io/velum:2: 0 of 1 node run it, 1 lost (n1)", list[0].Sentence())
}

// Many missing nodes are asked for a few hundred at once, a fleet that is cut off as a whole.
func TestAskForManyMissingNodes(t *testing.T) {
	t.Parallel()
	s := &server{now: []string{"n"}}
	for n := range 2*atOnce + 1 {
		s.known = append(s.known, fmt.Sprintf("n%d.example.com:9547", n))
	}
	_, err := Ask(t.Context(), s, "r.io/catalog:prod", []Release{velum})
	require.NoError(t, err)
	assert.Len(t, s.asked, 5+3*2)
	assert.Contains(t, s.asked[len(s.asked)-1], `,instance=~"n400\\.example\\.com:9547"}`)

	for n := range maxNamed {
		s.known = append(s.known, fmt.Sprintf("m%d", n))
	}
	s.asked = nil
	_, err = Ask(t.Context(), s, "r.io/catalog:prod", []Release{velum})
	require.NoError(t, err)
	assert.Len(t, s.asked, 5+2)
	assert.NotContains(t, s.asked[len(s.asked)-1], "instance=~")
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
	assert.False(t, Standing{Nodes: 3, Silent: 3}.IsDone(0))
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
	assert.Equal(t, "r:1: no node reports the image", Standing{Image: "r", Tag: "1"}.Sentence())
	assert.Equal(t, "r:1: 1 of 1 node run it", Standing{Image: "r", Tag: "1", Nodes: 1, Running: 1}.Sentence())
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567"} {
		assert.Equal(t, want, thousands(n))
	}
}
