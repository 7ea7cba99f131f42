// SPDX-License-Identifier: Apache-2.0

package neighbours

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/fleet"
	"github.com/kubic-project/image-update-agent/e2e/fleetserver"
	"github.com/kubic-project/image-update-agent/e2e/story"
	"github.com/kubic-project/image-update-agent/internal/fleet/fleetlock/fleetlocktest"
)

// outcome classifies a response of a lock server.
func outcome(status int, body string) string {
	e := &fleet.LockError{Status: status, Value: body}
	switch {
	case status == http.StatusOK:
		return "done"
	case e.IsTaken():
		return "taken"
	default:
		return "refused"
	}
}

// otherwiseOnPurpose returns why the tests' lock server answers a request differently from airlock, or an empty text if
// it must not.
func otherwiseOnPurpose(request fleetlocktest.Request) string {
	_, group, err := request.Client()
	switch {
	case request.Method != http.MethodPost:
		return "the protocol wants POST, airlock takes any method"
	case err == nil && group != "" && group != "masters" && group != "workers":
		return "airlock knows the groups of its configuration, the protocol has none"
	default:
		return ""
	}
}

// TestLockServerOfTheTestsAnswersAsAirlock checks that the tests' lock server grants, refuses and releases slots as
// coreos/airlock did in recorded answers to random requests of several nodes. Requests with an intentional difference
// are sent to neither.
func TestLockServerOfTheTestsAnswersAsAirlock(t *testing.T) {
	t.Parallel()
	table, err := fleetlocktest.Read("../../internal/fleet/fleetlock/testdata/airlock.json")
	require.NoError(t, err)
	store := story.StartEtcd(t).Store()
	servers := map[string]http.Handler{
		"masters": fleetserver.Server{Etcd: store},
		"workers": fleetserver.Server{Etcd: store, Slots: 3},
	}
	compared, seen := 0, map[string]int{}
	for n, step := range table.Steps {
		request, answer := table.Requests[step[0]], table.Answers[step[1]]
		want := outcome(answer.Status, answer.Body)
		if why := otherwiseOnPurpose(request); why != "" {
			seen[why]++
			if want != "done" {
				continue
			}
			request.Method = http.MethodPost // airlock accepts this method, so ours must
		}
		_, group, _ := request.Client()
		server, is := servers[group]
		if !is {
			server = servers["masters"]
		}
		r := httptest.NewRequestWithContext(t.Context(), request.Method, request.Path, strings.NewReader(request.Body))
		r.Header.Set("fleet-lock-protocol", request.Header)
		w := httptest.NewRecorder()
		server.ServeHTTP(w, r)
		require.Equal(t, want, outcome(w.Code, w.Body.String()), "step %d: %+v: %s", n, request, w.Body)
		compared++
	}
	assert.Greater(t, compared, 1000)
	t.Logf("%d requests; otherwise on purpose: %v", compared, seen)
}
