// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/release"
)

// For an http host with TLS settings, and for localhost, containerd falls back to plain http whenever TLS fails. An
// attacker who breaks TLS gets neither the password nor the token obtained with it.
func TestNoLoginWhenTLSBreaks(t *testing.T) {
	t.Parallel()
	breaks := []struct {
		title string
		at    string // the request that uses plain http
	}{
		{title: "before a poll with a token", at: "HEAD"},
		{title: "before a password buys a token", at: "POST"},
		{title: "before a password buys a token by GET", at: "GET"},
	}
	for _, b := range breaks {
		t.Run(b.title, func(t *testing.T) {
			t.Parallel()
			secure, plain := newOwnTLS(t, func(*ownTLS) {}), newFake(t)
			var broken atomic.Bool
			var seen strings.Builder
			plain.answer(func(w http.ResponseWriter, req *http.Request) {
				dump, err := httputil.DumpRequest(req, true)
				assert.NoError(t, err)
				seen.Write(dump)
				_, _ = fmt.Fprintf(w, `{"token":"bought-in-plain","access_token":"bought-in-plain"}`)
			})
			secure.answer(func(w http.ResponseWriter, req *http.Request) {
				w.Header().Set("Connection", "close")
				switch {
				case req.URL.Path == "/token" && req.Method == http.MethodPost && b.at == "GET":
					broken.Store(true)
					w.WriteHeader(http.StatusNotFound)
				case req.URL.Path == "/token":
					broken.Store(b.at == "HEAD")
					_, _ = fmt.Fprintf(w, `{"token":%[1]q,"access_token":%[1]q}`, secretToken)
				case req.Header.Get("Authorization") == "":
					broken.Store(b.at == "POST")
					challenge(w, bearer("https://"+ownName+"/token"))
				}
			})
			r, _ := newRegistry(t, certsD(t, ownName, plainHTTP(ownName)+"ca = \""+secure.ca+"\"\n"), withCredentials)
			r.client.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
				to := secure.host()
				if broken.Load() {
					to = plain.host()
				}
				return (&net.Dialer{}).DialContext(ctx, network, to)
			}
			_, err := r.Resolve(t.Context(), release.Reference{Repository: ownName + "/app", Tag: "1"})
			require.ErrorContains(t, err, "credentials are not sent over plain http")
			assert.False(t, secretIn(seen.String()), seen.String())
		})
	}
}

// A host that has fallen back and requires a token gets one without a login.
func TestTokenWithoutLoginAfterFallback(t *testing.T) {
	t.Parallel()
	plain := newFake(t)
	plain.tag("1", plain.image(t, "linux", "amd64", nil))
	plain.answer(func(w http.ResponseWriter, req *http.Request) {
		switch {
		case req.URL.Path == "/token" && req.Method == http.MethodGet:
			_, _ = fmt.Fprint(w, `{"token":"for-everybody"}`)
		case req.Header.Get("Authorization") != "Bearer for-everybody":
			challenge(w, bearer("https://"+ownName+"/token"))
		}
	})
	r, _ := newRegistry(t, certsD(t, ownName, plainHTTP(ownName)+"skip_verify = true\n"), withCredentials)
	r.client.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, plain.host())
	}
	got, err := r.Resolve(t.Context(), release.Reference{Repository: ownName + "/app", Tag: "1"})
	require.NoError(t, err)
	assert.True(t, got.Insecure)
	for _, req := range plain.asked {
		assert.False(t, secretIn(fmt.Sprint(req.Header)+req.URL.String()))
	}
}

// containerd asks no other host after a 200, even if the host refused HEAD before; e2e/neighbours compares them.
func TestAnswerToGetAfterARefusedHeadCounts(t *testing.T) {
	t.Parallel()
	first, second := newFake(t), newFake(t)
	second.tag("1", second.image(t, "linux", "amd64", nil))
	first.tag("1", first.image(t, "linux", "amd64", nil))
	first.answer(func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set(digestHeader, "sha256:short")
		if req.Method == http.MethodHead {
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		_, _ = w.Write([]byte("{}"))
	})
	r, _ := newRegistry(t, certsD(t, second.host(), plainHTTP(second.host())+"[host.\""+first.URL+"\"]\n"))
	_, err := r.Resolve(t.Context(), release.Reference{Repository: second.repository(), Tag: "1"})
	assert.True(t, sourceError(t, err).Answered)
	assert.Empty(t, second.log())
}
