// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
)

// fetched returns the output of a port.
func fetched(t *testing.T, address string) (string, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/metrics", nil)
	require.NoError(t, err)
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return string(body), err
}

// A port in use stops nothing; a reload moves the metrics to another one, and no counter decreases.
func TestMetricsPort(t *testing.T) {
	t.Parallel()
	n := story.Started(t)
	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()
	n.WriteFile(story.ConfigFile, "interval: 0\nmetrics: {listen: '"+other.Listener.Addr().String()+"'}\n")
	daemon := story.StartDaemonWith(t, n)
	story.Check(t, n)
	story.Diagnosed(t, story.Diagnose(t, n, 0)["metrics port"], "warning", "another program answers", "metrics.listen")
	node.Eventually(t, "the daemon tries", story.Ready, func() error {
		if log := story.Output(t, daemon.Stderr); !strings.Contains(log, "cannot serve metrics at the port") {
			return errors.New(log)
		}
		return nil
	})

	n.Registry.Down()
	story.Check(t, n)
	refused := `poll_failures_total{cause="refused",host="` + n.Registry.Host + `"}`
	before := story.Scrape(t, n)
	assert.InDelta(t, 1, story.Number(before, refused), 0)
	assert.InDelta(t, 1, story.Number(before, `stages_total{result="staged"}`), 0)
	sent := story.Number(before, `registry_requests_total{kind="metadata"}`)
	assert.Positive(t, sent)

	for range 2 {
		address := fmt.Sprintf("127.0.0.1:%d", n.FreePort())
		n.WriteFile(story.ConfigFile, "interval: 0\nmetrics: {listen: '"+address+"'}\n")
		story.Hangup(t, n, daemon)
		var text string
		node.Eventually(t, "numbers at "+address, story.Ready, func() (err error) {
			text, err = fetched(t, address)
			return err
		})
		for _, series := range []string{refused, `stages_total{result="staged"}`} {
			assert.InDelta(t, 1, story.Number(text, series), 0, series)
		}
		assert.GreaterOrEqual(t, story.Number(text, `registry_requests_total{kind="metadata"}`), sent)
		assert.InDelta(t, 1, story.Number(text, `offers{change="revision"}`), 0)
		assert.Positive(t, story.Number(text, "staged_bytes"))
		assert.Greater(t, story.Number(text, "loop_turns_total"), story.Number(before, "loop_turns_total"))
		story.Diagnosed(t, story.Diagnose(t, n, 1)["metrics port"], "ok", address)
		sent, before = story.Number(text, `registry_requests_total{kind="metadata"}`), text
	}

	n.WriteFile(story.ConfigFile, "metrics: {listen: '0.0.0.0:9547'}\n")
	r := n.Agent("config", "check")
	assert.Equal(t, 2, r.Code)
	assert.Contains(t, r.Stderr, "no authentication")
	assert.Equal(t, 0, daemon.Stop().Code)
}
