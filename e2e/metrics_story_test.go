// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/e2e/node"
)

// number is the value of a series in what was scraped; -1: it is not there.
func number(text, series string) float64 {
	found := regexp.MustCompile(`(?m)^image_update_agent_` + regexp.QuoteMeta(series) + ` (\S+)$`).FindStringSubmatch(text)
	if found == nil {
		return -1
	}
	value, err := strconv.ParseFloat(found[1], 64)
	if err != nil {
		return -1
	}
	return value
}

// fetched is what a port serves.
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

// A port that somebody else has stops nothing; a reload moves the numbers to another
// one, and no count falls with it.
func TestMetricsPort(t *testing.T) {
	t.Parallel()
	n := started(t)
	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()
	n.WriteFile(configFile, "interval: 0\nmetrics: {listen: '"+other.Listener.Addr().String()+"'}\n")
	daemon := startDaemonWith(t, n)
	check(t, n)
	diagnosed(t, diagnose(t, n, 0)["metrics port"], "warning", "another program answers", "metrics.listen")
	assert.Contains(t, output(t, daemon.Stderr), "metrics are not served at the port")

	n.Registry.Down()
	check(t, n)
	refused := `poll_failures_total{cause="refused",host="` + n.Registry.Host + `"}`
	before := scrape(t, n)
	assert.InDelta(t, 1, number(before, refused), 0)
	assert.InDelta(t, 1, number(before, `stages_total{result="staged"}`), 0)
	sent := number(before, `registry_requests_total{kind="metadata"}`)
	assert.Positive(t, sent)

	for range 2 {
		address := fmt.Sprintf("127.0.0.1:%d", n.FreePort())
		n.WriteFile(configFile, "interval: 0\nmetrics: {listen: '"+address+"'}\n")
		hangup(t, n, daemon)
		var text string
		node.Eventually(t, "numbers at "+address, ready, func() (err error) {
			text, err = fetched(t, address)
			return err
		})
		for _, series := range []string{refused, `stages_total{result="staged"}`} {
			assert.InDelta(t, 1, number(text, series), 0, series)
		}
		assert.GreaterOrEqual(t, number(text, `registry_requests_total{kind="metadata"}`), sent)
		assert.InDelta(t, 1, number(text, `offers{change="revision"}`), 0)
		assert.Positive(t, number(text, "staged_bytes"))
		assert.Greater(t, number(text, "loop_turns_total"), number(before, "loop_turns_total"))
		diagnosed(t, diagnose(t, n, 1)["metrics port"], "ok", address)
		sent, before = number(text, `registry_requests_total{kind="metadata"}`), text
	}

	n.WriteFile(configFile, "metrics: {listen: '0.0.0.0:9547'}\n")
	r := n.Agent("config", "check")
	assert.Equal(t, 2, r.Code)
	assert.Contains(t, r.Stderr, "without authentication")
	assert.Equal(t, 0, daemon.Stop().Code)
}
