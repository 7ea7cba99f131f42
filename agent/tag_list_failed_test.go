// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/agenttest"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/source"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/outside"
	"github.com/kubic-project/image-update-agent/tags"
)

func listFails(cause release.Cause, code int, err error) *release.SourceError {
	return &release.SourceError{Repository: velum, Host: agenttest.Host, Cause: cause, Status: code, Err: err}
}

// failedLists are the ways in which a tag list does not come although the host answers all else.
func failedLists() map[string]error {
	unasked := listFails(release.CauseUnasked, 0, errors.New("budget of 10 requests an hour is spent until 2026-11-21T12:06:00Z"))
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
		"lacks a tag":  listFails(release.CauseOther, 0, errors.New("tag list: has 0 tags, and not 4.0.0-rev1, which is there")),
		"budget spent": unasked,
		"no source":    errors.New("away"),
	}
}

// A list that failed is not an answer: which newer tags there are is not known, whether an older
// list is kept or not.
func TestATagListThatFailsMakesTheNodeStale(t *testing.T) {
	t.Parallel()
	for title, failure := range failedLists() {
		for _, isKept := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, kept %v", title, isKept), func(t *testing.T) {
				t.Parallel()
				w := follows(t, policy.Rule{Updates: tags.Revision})
				if !isKept {
					w.Disk.Lose()
					w.restart()
				}
				w.Registry.DownLists(failure)
				w.Registry.PublishBuild(velum, built("2", april.Add(time.Hour), ""), "4.0.0-rev2", "4.0.0-rev2-build1.1")
				for range 2 { // it is not forgotten with the next poll
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
					assert.Contains(t, r.Text, map[bool]string{true: "newer tags known until ", false: "newer tags were never known"}[isKept])
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

// havers is a source that says of its list that it is not whole.
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

// A source is told which tags are there. What a list that is not whole names is there, too.
func TestAListThatIsNotWholeIsUsedAndSaid(t *testing.T) {
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
