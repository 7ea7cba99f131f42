// SPDX-License-Identifier: Apache-2.0

package config

import (
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
