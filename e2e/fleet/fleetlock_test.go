// SPDX-License-Identifier: Apache-2.0

package fleet_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/agenttest"
	"github.com/kubic-project/image-update-agent/agent/fleet"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/e2e/fleetserver"
	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
	"github.com/kubic-project/image-update-agent/internal/fleet/fleetlock"
)

// lockServer serves the FleetLock protocol over an etcd.
func lockServer(t *testing.T, store fleetserver.Store) string {
	t.Helper()
	s := httptest.NewServer(fleetserver.Server{Etcd: store})
	t.Cleanup(s.Close)
	return s.URL
}

func lockOf(t *testing.T, url, id string) fleet.Locker {
	t.Helper()
	c, err := fleetlock.New(fleetlock.Options{URL: url, Group: "masters", ID: id, Version: "test", Timeout: story.Ready})
	require.NoError(t, err)
	return c
}

// The client with a real server over a real etcd, with the port's conformance tests; then without the leader, and
// without a quorum.
func TestFleetLockOverEtcd(t *testing.T) {
	t.Parallel()
	cluster := story.StartEtcd(t)
	url := lockServer(t, cluster.Store())
	agenttest.TestFleetLock(t, func(id string) fleet.Locker { return lockOf(t, url, id) })

	a, b := lockOf(t, url, "a"), lockOf(t, url, "b")
	_, err := a.Lock(t.Context())
	require.NoError(t, err)
	leader := cluster.Leader()
	leader.Kill()
	node.Eventually(t, "two members go on", story.Ready, func() error {
		_, err = b.Lock(t.Context())
		e := &fleet.LockError{}
		require.ErrorAs(t, err, &e, "b must not get it")
		if e.Kind != "failed_lock_semaphore_full" {
			return err
		}
		return nil
	})
	_, err = a.Lock(t.Context())
	require.NoError(t, err, "a dead leader takes no lock away")

	for _, m := range cluster.Members {
		if m.Process != nil {
			m.Kill()
			break
		}
	}
	_, err = a.Lock(t.Context())
	e := &fleet.LockError{}
	require.ErrorAs(t, err, &e)
	assert.Equal(t, http.StatusServiceUnavailable, e.Status, "one of three says nothing")
	require.ErrorIs(t, a.Unlock(t.Context()), release.ErrHeld)

	for _, m := range cluster.Members {
		if m.Process == nil {
			cluster.Start(m)
		}
	}
	for _, m := range cluster.Members {
		cluster.AwaitHealth(m)
	}
	_, err = b.Lock(t.Context())
	require.ErrorAs(t, err, &e)
	require.Len(t, e.Answer.Holders, 1)
	assert.Equal(t, "a", e.Answer.Holders[0].ID, "it has the lock although everything was down meanwhile")
	require.NoError(t, a.Unlock(t.Context()))
	_, err = b.Lock(t.Context())
	require.NoError(t, err)
}

// The tests' server follows the protocol's text: endpoints, header, body, errors.
func TestFleetLockServerFollowsTheProtocol(t *testing.T) {
	t.Parallel()
	url := lockServer(t, story.StartEtcd(t).Store())
	const good = `{"client_params": {"id": "a", "group": "masters"}}`
	for title, c := range map[string]struct {
		method, path, header, body string
		want                       int
	}{
		"lock":              {"POST", "/v1/pre-reboot", "true", good, 200},
		"lock again":        {"POST", "/v1/pre-reboot", "true", good, 200},
		"below a base":      {"POST", "/base/v1/pre-reboot", "true", good, 200},
		"unlock":            {"POST", "/v1/steady-state", "true", `{"client_params": {"id": "nobody", "group": "masters"}}`, 200},
		"without header":    {"POST", "/v1/pre-reboot", "", good, 400},
		"another header":    {"POST", "/v1/pre-reboot", "false", good, 400},
		"GET":               {"GET", "/v1/pre-reboot", "true", good, 405},
		"another endpoint":  {"POST", "/v1/reboot", "true", good, 404},
		"no JSON":           {"POST", "/v1/pre-reboot", "true", "{", 400},
		"empty id":          {"POST", "/v1/pre-reboot", "true", `{"client_params": {"id": "", "group": "masters"}}`, 400},
		"group of no regex": {"POST", "/v1/pre-reboot", "true", `{"client_params": {"id": "a", "group": "a_b"}}`, 400},
		"full":              {"POST", "/v1/pre-reboot", "true", `{"client_params": {"id": "b", "group": "full"}}`, 409},
	} {
		ask := func(body string) (int, string) {
			req, err := http.NewRequestWithContext(t.Context(), c.method, url+c.path, strings.NewReader(body))
			require.NoError(t, err)
			if c.header != "" {
				req.Header.Set("fleet-lock-protocol", c.header)
			}
			resp, err := story.PlainClient.Do(req)
			require.NoError(t, err)
			defer resp.Body.Close()
			text, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			return resp.StatusCode, string(text)
		}
		if title == "full" {
			code, _ := ask(`{"client_params": {"id": "a", "group": "full"}}`)
			require.Equal(t, 200, code)
		}
		code, text := ask(c.body)
		assert.Equal(t, c.want, code, "%s: %s", title, text)
		if code != 200 {
			var said struct{ Kind, Value string }
			require.NoError(t, json.Unmarshal([]byte(text), &said), title)
			assert.NotEmpty(t, said.Kind, title)
			assert.NotEmpty(t, said.Value, title)
		}
	}
}
