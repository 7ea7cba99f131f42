// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A URL may come from a file, whose text is in no error. Without TLS, a token would be readable between two nodes.
func TestURLsOfWebhooks(t *testing.T) {
	t.Parallel()
	const noURL, noTLS = "want the URL of a webhook", "want https, or http to an address of this node"
	long := "https://hooks.example.com/" + strings.Repeat("a", 2048-len("https://hooks.example.com/"))
	for url, want := range map[string]string{
		"https://hooks.example.com/s3cr3t?a=b": "", "https://10.0.0.1/s3cr3t": "", long: "",
		"http://127.0.0.1:8080/s3cr3t": "", "http://127.9.9.9/s3cr3t": "", "http://[::1]:80/s3cr3t": "",
		"http://10.0.0.1/s3cr3t": noTLS, "http://192.168.1.1:8080/s3cr3t": noTLS, "http://0.0.0.0/s3cr3t": noTLS,
		"http://[fe80::1]/s3cr3t": noTLS, "http://[::ffff:10.0.0.1]/s3cr3t": noTLS, "http://169.254.0.1/s3cr3t": noTLS,
		"http://localhost/s3cr3t": noTLS, "http://127.0.0.1.example.com/s3cr3t": noTLS, "ftp://127.0.0.1/s3cr3t": noTLS,
		"https://user:s3cr3t@hooks.example.com/": noURL, "https://hooks.example.com/#s3cr3t": noURL, "s3cr3t": noURL,
		"https:///s3cr3t": noURL, "https://h/s3cr3t\x7f": noURL, long + "s3cr3t": noURL, "": noURL,
	} {
		err := CheckWebhookURL(url)
		if want == "" {
			require.NoError(t, err, url)
			continue
		}
		require.ErrorContains(t, err, want, url)
		assert.NotContains(t, err.Error(), "s3cr3t", url)
	}
}

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
