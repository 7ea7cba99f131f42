// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/containerd/containerd/v2/core/remotes/docker"
	remoteerrors "github.com/containerd/containerd/v2/core/remotes/errors"

	"github.com/kubic-project/image-update-agent/internal/base/outside"
)

// Question is one request to a host.
type Question struct {
	Method     string // empty: GET
	URL        *url.URL
	Repository string // for the scope of its token: the path in the registry
	Accept     string
	Limit      int64 // bytes of the answer's body
	Offset     int64 // start of the body
	// Read reads the body as it arrives, and the answer has none; nil: the answer has the body.
	Read func(http.Header, io.Reader) error
}

// Answer is a host's answer with status 200.
type Answer struct {
	Header   http.Header
	Body     []byte // empty for HEAD
	Insecure bool   // no certificate verifies that it is from that host
	Private  bool   // the request had a login of the node
}

// Refused is the error for an answer with a status other than 200.
type Refused struct {
	Status  int
	RetryAt time.Time // from Retry-After; zero: none
	Err     error     // why no login helped; nil: the status is the reason
}

// Error names the status by its code only: the reason phrase is the host's text.
func (r *Refused) Error() string {
	if r.Err != nil {
		return fmt.Sprintf("%s: %v", statusText(r.Status), r.Err)
	}
	return statusText(r.Status)
}

// Unwrap returns the cause.
func (r *Refused) Unwrap() error { return r.Err }

func statusText(code int) string {
	return strings.TrimSpace(fmt.Sprintf("%d %s", code, http.StatusText(code)))
}

// Ask sends a question to a host and reads the answer. The error is Refused, Held, or why the answer is incomplete.
func (c *Client) Ask(ctx context.Context, host docker.RegistryHost, q Question) (Answer, error) {
	ctx, cancel := context.WithTimeout(forQuestion(ctx), askTimeout)
	defer cancel()
	resp, err := c.Send(ctx, host, q)
	if err != nil {
		return Answer{}, err
	}
	var body []byte
	if q.Read == nil {
		body, err = readBody(resp, q.Limit)
	} else {
		err = errors.Join(q.Read(resp.Header, &limited{resp.Body, q.Limit, q.Limit}), resp.Body.Close())
	}
	if err != nil {
		return Answer{}, err
	}
	return Answer{Header: resp.Header, Body: body, Insecure: insecure(resp), Private: IsPrivate(resp)}, nil
}

// Send sends a question to a host: once, and once more if a 401 names the required credentials, or comes from the
// target of a redirect. The status is 200, or 206 from an offset; the caller closes the body. Errors are as in Ask.
func (c *Client) Send(ctx context.Context, host docker.RegistryHost, q Question) (*http.Response, error) {
	ctx = docker.WithScope(ctx, "repository:"+q.Repository+":pull")
	challenges := map[string][]*http.Response{} // by the origin of the host
	for n := 1; ; n++ {
		resp, err := send(ctx, host, q)
		switch {
		case err != nil:
			return nil, err
		case resp.StatusCode == http.StatusOK, resp.StatusCode == http.StatusPartialContent && q.Offset > 0:
			return resp, nil
		}
		discard(resp)
		refused := &Refused{Status: resp.StatusCode, RetryAt: retryAt(resp.Header, c.options.Now())}
		if resp.StatusCode != http.StatusUnauthorized || n > maxChallenges {
			return nil, refused
		}
		from := originOf(resp.Request.URL)
		challenges[from] = append(challenges[from], resp)
		err = host.Authorizer.AddResponses(ctx, challenges[from])
		if failure, is := errors.AsType[*tokenError](err); is {
			return nil, fmt.Errorf("authorize: %w", failure)
		}
		if err != nil || len(challenges[from]) > 1 {
			refused.Err = plain(err)
			return nil, refused
		}
	}
}

// send makes one request. The host's own headers come first, as in containerd.
func send(ctx context.Context, host docker.RegistryHost, q Question) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, q.Method, q.URL.String(), nil)
	if err != nil {
		return nil, err
	}
	if host.Header != nil {
		req.Header = host.Header.Clone()
	}
	req.Header.Add("Accept", q.Accept)
	if q.Offset > 0 {
		req.Header.Set("Range", fmt.Sprintf("bytes=%d-", q.Offset))
	}
	if err := host.Authorizer.Authorize(ctx, req); err != nil {
		return nil, fmt.Errorf("authorize: %w", plain(err))
	}
	resp, err := host.Client.Do(req)
	if err != nil {
		return nil, plain(err)
	}
	return resp, nil
}

// plain removes the URL from an error of the HTTP client or the authorizer, because the query in the URL of a redirect
// or a realm may be secret.
func plain(err error) error {
	if status, ok := errors.AsType[remoteerrors.ErrUnexpectedStatus](err); ok {
		return fmt.Errorf("token server: %s", statusText(status.StatusCode))
	}
	if withURL, ok := errors.AsType[*url.Error](err); ok {
		return withURL.Err
	}
	return err
}

// readBody reads and closes the body. A body over the limit is not drained: closing it closes the connection.
func readBody(resp *http.Response, limit int64) ([]byte, error) {
	if resp.Body == http.NoBody {
		return nil, nil
	}
	data, err := outside.ReadAll(resp.Body, limit)
	if err := errors.Join(err, resp.Body.Close()); err != nil {
		return nil, fmt.Errorf("body: %w", err)
	}
	return data, nil
}

// limited limits the bytes read from a body.
type limited struct {
	body        io.Reader
	left, limit int64
}

func (l *limited) Read(p []byte) (int, error) {
	n, err := l.body.Read(p[:min(int64(len(p)), l.left+1)])
	if l.left -= int64(n); l.left < 0 {
		return 0, fmt.Errorf("body: %w: over %d bytes", outside.ErrTooLarge, l.limit)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		err = fmt.Errorf("body: %w", err)
	}
	return n, err
}

// discard reads the short body of a refusal, so that the connection can be reused; a longer one is closed.
func discard(resp *http.Response) {
	_, _ = io.CopyN(io.Discard, resp.Body, maxToken)
	_ = resp.Body.Close()
}

// insecure reports whether one hop, redirects included, had no TLS or skip_verify: then there is no verified chain.
func insecure(resp *http.Response) bool {
	for ; resp != nil; resp = resp.Request.Response {
		if resp.TLS == nil || len(resp.TLS.VerifiedChains) == 0 {
			return true
		}
	}
	return false
}

// kind is the purpose of a request.
type kind int

// The kinds; the zero value is a question.
const (
	kindQuestion kind = iota
	kindToken
	kindPull
)

// purpose says what a request belongs to.
type purpose struct {
	kind kind
	// begun is set when the first request of a question is admitted: only that one can be refused for the budget. Its
	// further requests (a token, the hop of a redirect) are not, because otherwise the first one would be wasted. nil:
	// no request is refused.
	begun *atomic.Bool
}

type purposeKey struct{}

func purposeOf(ctx context.Context) purpose {
	p, _ := ctx.Value(purposeKey{}).(purpose)
	return p
}

func with(ctx context.Context, p purpose) context.Context {
	return context.WithValue(ctx, purposeKey{}, p)
}

// ForPull marks the requests of a pull: they are counted as such and never wait for the budget.
func ForPull(ctx context.Context) context.Context { return with(ctx, purpose{kind: kindPull}) }

// forQuestion begins a question, unless ctx is a pull's.
func forQuestion(ctx context.Context) context.Context {
	if purposeOf(ctx).kind == kindPull {
		return ctx
	}
	return with(ctx, purpose{begun: new(atomic.Bool)})
}

// forToken marks the token request of a question or pull.
func forToken(ctx context.Context) context.Context {
	p := purposeOf(ctx)
	p.kind = kindToken
	return with(ctx, p)
}
