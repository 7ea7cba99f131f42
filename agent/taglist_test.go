// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"
	"unsafe"
	"weak"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/agenttest"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/source"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
	"github.com/kubic-project/image-update-agent/tags"
)

// longLists adds old tags to each list, and counts how many earlier lists are still in memory when the next one is
// requested.
type longLists struct {
	source.Source

	lists int
	old   []weak.Pointer[byte]
	kept  int // earlier lists in memory at a later request
}

func (l *longLists) Tags(ctx context.Context, repository string) ([]string, error) {
	l.observe()
	l.lists++
	names, err := l.Source.Tags(ctx, repository)
	for n := range 1000 {
		names = append(names, fmt.Sprintf("3.0.%d-rev1-build1.1", n))
	}
	l.old = append(l.old, weak.Make(unsafe.StringData(names[len(names)-500])))
	return names, err
}

func (l *longLists) observe() {
	runtime.GC()
	for _, old := range l.old {
		if old.Value() != nil {
			l.kept++
		}
	}
}

// A hundred thousand tags per repository at once take hundreds of megabytes.
func TestTagListsAreDroppedAfterUse(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const repositories = 4
	var containers []string
	for n := range repositories {
		repository := fmt.Sprintf("registry.suse.com/caasp/v4/r%d", n)
		w.Registry.Release(repository, "4.0.0", 1, "1.1")
		w.Registry.Release(repository, "4.0.0", 2, "1.1")
		containers = append(containers, fmt.Sprintf("c%d=%s:4.0.0-rev1", n, repository), fmt.Sprintf("d%d=%s:4.0.0", n, repository))
	}
	w.Node.PutTemplate("many.yaml", podYAML("many", containers...))
	w.restart()
	lists := &longLists{Source: w.agent.Source}
	w.agent.Source = lists

	s := w.check()

	assert.Contains(t, w.Node.PodManifest("many.yaml"), "r3:4.0.0-rev2", s.Reason)
	lists.observe()
	require.Equal(t, repositories, lists.lists)
	assert.Zero(t, lists.kept)
}

// The trimmed list still answers its questions when a tag moved between two readings, even on a line with many higher
// tags.
func TestTrimmedListKeepsTheIntermediateTag(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.Policy.ConfirmAfter = 30 * time.Second
		for n := range 20 {
			w.Registry.Release(velum, "5.0.0", n+1, "1.1")
		}
		w.Registry.Release(velum, "4.0.0", 1, "1.1")
		w.Node.PutTemplate("velum.yaml", podYAML("velum", "velum="+velum+":4.0.0"))
		w.restart()
		w.meanwhile(func(n int) {
			if n == 1 {
				w.Registry.Release(velum, "4.0.0", 1, "1.2")
			}
		})
		s := w.check()
		assert.Contains(t, w.Node.PodManifest("velum.yaml"), velum+":4.0.0-rev1\n", s.Reason)
	})
}

func listFails(cause release.Cause, code int, err error) *release.SourceError {
	return &release.SourceError{Repository: velum, Host: agenttest.Host, Cause: cause, Status: code, Err: err}
}

// failedLists are the ways in which a tag list fails although the host answers all other requests.
func failedLists() map[string]error {
	unasked := listFails(release.CauseUnasked, 0, errors.New("budget of 10 requests an hour is used up until 2026-11-21T12:06:00Z"))
	unasked.Unasked, unasked.Host = true, ""
	torn := listFails(release.CauseAuth, 403, fmt.Errorf("tag list: page 2: 403: %w", release.ErrTornList))
	return map[string]error{
		"500":          listFails(release.CauseServerError, 500, errors.New("500 Internal Server Error")),
		"503":          listFails(release.CauseServerError, 503, errors.New("503 Service Unavailable")),
		"429":          listFails(release.CauseRateLimited, 429, errors.New("429 Too Many Requests")),
		"400":          listFails(release.CauseOther, 400, errors.New("400 Bad Request")),
		"418":          listFails(release.CauseOther, 418, errors.New("418")),
		"timeout":      listFails(release.CauseTimeout, 0, context.DeadlineExceeded),
		"TLS":          listFails(release.CauseTLS, 0, errors.New("x509: unknown authority")),
		"a page":       listFails(release.CauseNoRegistry, 0, errors.New("answers with a page")),
		"too large":    listFails(release.CauseOther, 0, fmt.Errorf("tag list: %w: over 100000 tags", outside.ErrTooLarge)),
		"torn":         listFails(release.CauseOther, 0, errors.New("tag list: body: unexpected EOF")),
		"page 2: 403":  torn,
		"lacks a tag":  listFails(release.CauseOther, 0, errors.New("tag list: has 0 tags, but not 4.0.0-rev1, which is there")),
		"budget spent": unasked,
		"no source":    errors.New("away"),
	}
}

// A failed list is not an answer: the newer tags are unknown, whether an older list is kept or not.
func TestFailedTagListMakesTheNodeStale(t *testing.T) {
	t.Parallel()
	for title, failure := range failedLists() {
		for _, isKept := range []bool{false, true} {
			parallel(t, fmt.Sprintf("%s, kept %v", title, isKept), func(t *testing.T) {
				w := follows(t, policy.Rule{Updates: tags.Revision})
				if !isKept {
					w.Disk.Lose()
					w.restart()
				}
				w.Registry.DownLists(failure)
				w.Registry.PublishBuild(velum, built("2", april.Add(time.Hour), ""), "4.0.0-rev2", "4.0.0-rev2-build1.1")
				for range 2 { // the next poll keeps it
					s := w.check()
					assert.Equal(t, status.StateStale, s.State, s.Reason)
					require.NotEmpty(t, s.Reasons)
					want, _ := errors.AsType[*release.SourceError](failure)
					if want == nil {
						want = listFails(release.CauseOther, 0, failure)
						want.Host = s.Sources[0].Host
					}
					r := s.Reasons[0]
					assert.Equal(t, status.KindSource, r.Kind)
					assert.Equal(t, want.Cause, r.Cause)
					assert.Equal(t, want.Status, r.HTTPStatus)
					if want.Host != "" {
						assert.Equal(t, want.Host, r.Host)
					}
					assert.Contains(t, r.Text, "tag list: ")
					assert.Contains(t, r.Text, map[bool]string{true: "newer tags known until ", false: "newer tags are unknown"}[isKept])
					require.Len(t, s.Sources, 1)
					assert.Positive(t, s.Sources[0].Failures)
					assert.Equal(t, want.Cause, s.Sources[0].Cause)
					assert.Contains(t, s.Sources[0].Reason, "tag list: ")
					assert.NotNil(t, s.Sources[0].RetryAt)
					assert.Contains(t, fmt.Sprint(image(s, "velum.yaml", "velum").Notes), "newer tags unknown")
				}
				assert.Equal(t, status.StateStale, w.observe().State, "without asking")
				w.Registry.DownLists(nil)
				s := w.check()
				assert.Equal(t, status.StateStaged, s.State, s.Reason)
				assert.Zero(t, s.Sources[0].Failures)
				assert.Empty(t, image(s, "velum.yaml", "velum").Notes)
			})
		}
	}
}

// havers is a source that marks its list as incomplete.
type havers struct {
	source.Source

	known []string
	names []string
	err   error
}

func (h *havers) TagsHaving(_ context.Context, _ string, known []string) ([]string, error) {
	h.known = known
	return h.names, h.err
}

// An incomplete list is used: the tags in it exist.
func TestIncompleteListIsUsedAndReported(t *testing.T) {
	t.Parallel()
	w := follows(t, policy.Rule{Updates: tags.Revision})
	w.Registry.PublishBuild(velum, built("2", april.Add(time.Hour), ""), "4.0.0-rev2", "4.0.0-rev2-build1.1")
	h := &havers{Source: w.agent.Source, names: []string{"4.0.0-rev2"}, err: listFails(release.CauseOther, 0, errors.New("tag list: lacks 4.0.0-rev1"))}
	w.agent.Source = h
	s := w.check()
	assert.Contains(t, h.known, "4.0.0-rev1")
	assert.Equal(t, status.StateStale, s.State, s.Reason)
	i := image(s, "velum.yaml", "velum")
	require.NotNil(t, i.Offered)
	assert.Contains(t, i.Offered.Tag, "4.0.0-rev2")
}

// nullLists returns the lists in a document that JSON would write as null.
func nullLists(v reflect.Value, at string) []string {
	var out []string
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			out = nullLists(v.Elem(), at)
		}
	case reflect.Slice:
		if v.IsNil() {
			return []string{at}
		}
		for n := range v.Len() {
			out = append(out, nullLists(v.Index(n), fmt.Sprint(at, "[", n, "]"))...)
		}
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			return nil
		}
		for field, value := range v.Fields() {
			name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
			if field.IsExported() && (options != "omitempty" || value.Kind() != reflect.Slice || value.Len() > 0) {
				out = append(out, nullLists(value, at+"."+name)...)
			}
		}
	}
	return out
}

func TestEmptyListsOfTheStatusAreNotNull(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _ := running(t)
		assert.Empty(t, nullLists(reflect.ValueOf(w.observe()), "current"))
		w.bad(1, "9.9")
		w.apply()
		s := w.observe()
		require.Equal(t, status.StateFailed, s.State)
		assert.Empty(t, nullLists(reflect.ValueOf(s), "failed"))
		l := start(t, newWorld(t), 0, 0)
		assert.Empty(t, nullLists(reflect.ValueOf(l.Status()), "empty node"))
	})
}
