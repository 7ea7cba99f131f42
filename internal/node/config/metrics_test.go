// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// listens are texts for metrics.listen, and the error of each; nil if it is valid.
var listens = map[string]error{
	"":                        nil,
	"127.0.0.1:9547":          nil,
	"127.1.2.3:1":             nil,
	"[::1]:65535":             nil,
	"[::ffff:127.0.0.1]:9547": nil,
	"0.0.0.0:9547":            errNoLoopback,
	"[::]:9547":               errNoLoopback,
	"10.0.0.5:9547":           errNoLoopback,
	"[fe80::1]:9547":          errNoLoopback,
	"[::ffff:10.0.0.5]:9547":  errNoLoopback,
	"128.0.0.1:9547":          errNoLoopback,
	"[::1%lo]:9547":           errListen,
	"localhost:9547":          errListen,
	":9547":                   errListen,
	"9547":                    errListen,
	"127.0.0.1":               errListen,
	"::1:9547":                errListen,
	"127.0.0.1:0":             errListen,
	"127.0.0.1:65536":         errListen,
	"127.0.0.1:http":          errListen,
	"http://127.0.0.1:9547":   errListen,
	"127.0.0.1:9547/metrics":  errListen,
	"127.0.0.1:9547 ":         errListen,
}

func TestMetricsAreServedOnTheNodeOnly(t *testing.T) {
	t.Parallel()
	for text, want := range listens {
		_, err := read("x", "", fmt.Sprintf("metrics: {listen: %q}", text))
		require.ErrorIs(t, err, want, text)
	}
	assert.Contains(t, errNoLoopback.Error(), "no authentication")
}
