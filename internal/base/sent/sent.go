// SPDX-License-Identifier: Apache-2.0

// Package sent tells whether an HTTP request may have reached its server, and keeps the secrets that it carried out of
// what is said of the answer.
package sent

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/kubic-project/image-update-agent/internal/base/outside"
)

// Watch returns a context for a request, and a function that reports whether the request may have reached the server.
// net/http writes a request only to a connection that it got: after the name was resolved, after TCP connected, and
// after TLS accepted the server's certificate.
func Watch(ctx context.Context) (watched context.Context, maybeSent func() bool) {
	var got atomic.Bool
	trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { got.Store(true) }}
	return httptrace.WithClientTrace(ctx, trace), got.Load
}

// hidden replaces a secret.
const hidden = "***"

// maxForm is the size of the start of a form that is searched for secrets.
const maxForm = 32 << 10

// Unsaid returns an error without the secrets that were sent to a server or a proxy, whose answer may quote them in any
// form. errors.Is and errors.As still find err.
func Unsaid(err error, secrets ...string) error {
	if err == nil {
		return nil
	}
	return outside.WithText(err, UnsaidText(err.Error(), secrets...))
}

// UnsaidText is Unsaid for the text of an answer.
func UnsaidText(text string, secrets ...string) string {
	var forms []string
	for _, s := range secrets {
		if s == "" {
			continue
		}
		quoted, inJSON := strconv.Quote(s), "\"\""
		if data, err := json.Marshal(s); err == nil {
			inJSON = string(data)
		}
		forms = append(forms, s, url.QueryEscape(s), url.PathEscape(s), quoted[1:len(quoted)-1], inJSON[1:len(inJSON)-1],
			base64.StdEncoding.EncodeToString([]byte(s)), base64.RawURLEncoding.EncodeToString([]byte(s)))
	}
	slices.SortFunc(forms, func(a, b string) int { return len(b) - len(a) }) // one may be part of another
	for _, form := range forms {
		if form != "" {
			text = strings.ReplaceAll(text, form, hidden)
		}
	}
	return text
}

// Secrets returns those in a request: its login, also as user:password, those of its URL and of a form, and the login
// for the proxy that http.Transport chooses with proxy; nil: none.
func Secrets(req *http.Request, proxy func(*http.Request) (*url.URL, error)) (secrets []string) {
	if req == nil {
		return nil
	}
	if proxy != nil {
		if through, err := proxy(req); err == nil && through != nil {
			secrets = Secrets(&http.Request{URL: through}, nil)
		}
	}
	for _, name := range []string{"Authorization", "Proxy-Authorization", "Cookie"} {
		for _, value := range req.Header[name] {
			_, word, _ := strings.Cut(value, " ")
			secrets = append(secrets, value, word)
			if decoded, err := base64.StdEncoding.DecodeString(word); err == nil {
				secrets = append(secrets, ofLogin(string(decoded))...)
			}
		}
	}
	if user := req.URL.User; user != nil {
		password, _ := user.Password()
		secrets = append(secrets, ofLogin(user.Username()+":"+password)...)
	}
	return append(secrets, ofForm(req)...)
}

// ofLogin returns user:password, and the password. A user without a password may be a token.
func ofLogin(pair string) []string {
	user, password, _ := strings.Cut(pair, ":")
	if password == "" {
		return []string{user}
	}
	return []string{pair, password}
}

// ofForm returns the secrets of a form, which token servers take.
func ofForm(req *http.Request) (secrets []string) {
	if req.GetBody == nil || !strings.HasPrefix(req.Header.Get("Content-Type"), "application/x-www-form-urlencoded") {
		return nil
	}
	body, err := req.GetBody()
	if err != nil {
		return nil
	}
	defer body.Close()
	data, _ := io.ReadAll(io.LimitReader(body, maxForm))
	form, _ := url.ParseQuery(string(bytes.TrimSpace(data)))
	for _, name := range []string{"password", "refresh_token", "client_secret"} {
		secrets = append(secrets, form[name]...)
	}
	return secrets
}
