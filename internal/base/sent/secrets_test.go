// SPDX-License-Identifier: Apache-2.0

package sent_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/internal/base/sent"
)

func TestASecretThatWasSentIsNotSaid(t *testing.T) {
	t.Parallel()
	form := url.Values{"password": {"of form"}, "refresh_token": {"fresh"}, "service": {"shown"}}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://user:of%20url@host.example.com/",
		strings.NewReader(form.Encode()))
	require.NoError(t, err)
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Authorization", "Basic dXNlcjpwIHcvMSIr") // user:p w/1"+
	req.Header.Set("Proxy-Authorization", "Bearer short")
	secrets := sent.Secrets(req, nil)
	for _, echoed := range []string{
		"Basic dXNlcjpwIHcvMSIr", "dXNlcjpwIHcvMSIr", "p w/1\"+", "p+w%2F1%22%2B", "p%20w%2F1%22+", `p w/1\"+`, "cCB3LzEiKw",
		"short", "c2hvcnQ=", "fresh", "of form", "of url", "of+url", "dXNlcjpvZiB1cmw=",
	} {
		err := sent.Unsaid(fmt.Errorf("malformed answer <%s>: %w", echoed, io.EOF), secrets...)
		assert.Equal(t, "malformed answer <***>: EOF", err.Error())
		require.ErrorIs(t, err, io.EOF)
	}
	ours := errors.New("status 401 for user, shown")
	assert.Equal(t, ours, sent.Unsaid(ours, secrets...))
	require.NoError(t, sent.Unsaid(nil, "x"))
	assert.Empty(t, sent.Secrets(nil, nil))
	proxy := http.ProxyURL(&url.URL{Host: "proxy:3128", User: url.UserPassword("u", "of proxy")})
	assert.Equal(t, "proxy: *** ***", sent.UnsaidText("proxy: dTpvZiBwcm94eQ== of proxy", sent.Secrets(req, proxy)...))
}
