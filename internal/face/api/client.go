// SPDX-License-Identifier: Apache-2.0

package api

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptrace"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// ErrNoDaemon: no process listens on the socket. A caller without permission gets
// fs.ErrPermission instead, as it cannot know.
var ErrNoDaemon = errors.New("no daemon answers")

// ErrBusy: a daemon listens, and other clients have all its connections.
var ErrBusy = errors.New("the daemon is busy: too many connections")

// statusPatience is how long Status waits: the daemon answers at once, whatever it does,
// and some tenths of a second after its start.
const statusPatience = 5 * time.Second

// Client talks to a daemon's socket.
type Client struct {
	path     string
	patience time.Duration // of Status
	http     *http.Client
}

// NewClient makes a client of the socket at path; nothing is dialled yet.
func NewClient(path string) *Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}
	return &Client{
		path: path, patience: statusPatience,
		http: &http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}},
	}
}

// Status asks for the daemon's status. If systemd holds the socket and the daemon is not back yet, it returns
// ErrNoDaemon after statusPatience.
//
// A daemon that is killed breaks its connections: Status asks once more, because that changes nothing. systemd keeps
// the socket meanwhile.
func (c *Client) Status(ctx context.Context) (status.Status, error) {
	s, err := c.status(ctx)
	if isBroken(err) && ctx.Err() == nil {
		return c.status(ctx)
	}
	return s, err
}

// isBroken reports that a connection ended before its answer.
func isBroken(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) ||
		errors.Is(err, syscall.EPIPE)
}

func (c *Client) status(ctx context.Context) (status.Status, error) {
	var s status.Status
	waiting, cancel := context.WithTimeout(ctx, c.patience)
	defer cancel()
	body, err := c.do(waiting, http.MethodGet, "/v1/status", nil)
	if err != nil && ctx.Err() == nil && waiting.Err() != nil {
		if c.isServed(ctx) {
			return s, fmt.Errorf("socket %s: no answer within %s: %w", c.path, c.patience, ErrBusy)
		}
		return s, fmt.Errorf("socket %s: %w within %s", c.path, ErrNoDaemon, c.patience)
	}
	if err != nil {
		return s, err
	}
	defer body.Close()
	if err := json.NewDecoder(io.LimitReader(body, maxLine)).Decode(&s); err != nil {
		return s, fmt.Errorf("socket %s: status: %w", c.path, err)
	}
	return s, nil
}

// isServed reports whether there is a daemon: the socket of the service manager takes
// connections without one, and the acting socket beside it is the daemon's own.
func (c *Client) isServed(ctx context.Context) bool {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", filepath.Join(filepath.Dir(c.path), "agent.sock"))
	if err == nil {
		_ = conn.Close()
	}
	return err == nil || errors.Is(err, syscall.EACCES) || errors.Is(err, syscall.EAGAIN)
}

// Check makes the daemon poll now. onProgress may be nil. A check that failed returns what is known, too; the status is
// nil if the daemon ended before it had one.
func (c *Client) Check(ctx context.Context, onProgress func(status.Progress)) (*status.Status, error) {
	return c.poll(ctx, "/v1/check", onProgress)
}

// ForgetCatalog makes the daemon forget its verified version of the release catalog, and poll. It returns what Check
// does.
func (c *Client) ForgetCatalog(ctx context.Context, onProgress func(status.Progress)) (*status.Status, error) {
	return c.poll(ctx, "/v1/catalog/forget", onProgress)
}

// ReleaseLock makes the daemon release the fleet lock. It returns what Check does.
func (c *Client) ReleaseLock(ctx context.Context, onProgress func(status.Progress)) (*status.Status, error) {
	return c.poll(ctx, "/v1/lock/release", onProgress)
}

// TryLock makes the daemon take the fleet lock and release it at once. It returns what Check does.
func (c *Client) TryLock(ctx context.Context, onProgress func(status.Progress)) (*status.Status, error) {
	return c.poll(ctx, "/v1/lock/try", onProgress)
}

func (c *Client) poll(ctx context.Context, path string, onProgress func(status.Progress)) (*status.Status, error) {
	res, err := c.stream(ctx, path, struct{}{}, onProgress)
	if err == nil && res.Status == nil {
		err = fmt.Errorf("socket %s: the result has no status", c.path)
	}
	return res.Status, err
}

// Apply makes the daemon approve and apply what is staged for the selected images. onProgress may be nil. If ctx ends
// first, the outcomes say how far it came.
func (c *Client) Apply(
	ctx context.Context, req agent.ApplyRequest, onProgress func(status.Progress),
) ([]status.Outcome, error) {
	res, err := c.leavable(ctx, "/v1/apply", req, onProgress)
	return res.Outcomes, err
}

// Rollback makes the daemon return the pods of the images to what ran well before. onProgress may be nil.
func (c *Client) Rollback(
	ctx context.Context, which plan.Which, onProgress func(status.Progress),
) ([]status.Outcome, error) {
	res, err := c.leavable(ctx, "/v1/rollback", which, onProgress)
	return res.Outcomes, err
}

// Reload makes the daemon read its configuration again. On success it is in effect; on an error nothing has changed.
func (c *Client) Reload(ctx context.Context) error {
	_, err := c.stream(ctx, "/v1/reload", struct{}{}, nil)
	return err
}

// leavePatience is how long a client that leaves waits to hear what goes on without it.
const leavePatience = 10 * time.Second

// leavable is stream for a request that its caller may leave. When ctx ends, the client only ends its side of the
// connection: the daemon takes back what has not begun, and still answers.
func (c *Client) leavable(
	ctx context.Context, path string, req any, onProgress func(status.Progress),
) (ResultEvent, error) {
	asking, abandon := context.WithCancel(context.WithoutCancel(ctx))
	defer abandon()
	var to atomic.Pointer[net.UnixConn]
	asking = httptrace.WithClientTrace(asking, &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) {
		if conn, is := i.Conn.(*net.UnixConn); is {
			to.Store(conn)
		}
	}})
	defer context.AfterFunc(ctx, func() {
		conn := to.Load()
		if conn == nil || conn.CloseWrite() != nil {
			abandon()
			return
		}
		timer := time.AfterFunc(leavePatience, abandon)
		context.AfterFunc(asking, func() { timer.Stop() })
	})()
	res, err := c.stream(asking, path, req, onProgress)
	if _, answered := errors.AsType[*Error](err); err != nil && !answered && ctx.Err() != nil {
		err = fmt.Errorf("%w: %w", err, ctx.Err())
	}
	return res, err
}

// stream sends a request and follows its events to the result.
func (c *Client) stream(
	ctx context.Context, path string, req any, onProgress func(status.Progress),
) (ResultEvent, error) {
	data, err := json.Marshal(req)
	if err != nil {
		return ResultEvent{}, fmt.Errorf("request: %w", err)
	}
	body, err := c.do(ctx, http.MethodPost, path, data)
	if err != nil {
		return ResultEvent{}, err
	}
	defer body.Close()
	lines := bufio.NewScanner(body)
	lines.Buffer(make([]byte, 0, 64<<10), maxLine)
	for lines.Scan() {
		var e Event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return ResultEvent{}, fmt.Errorf("socket %s: event: %w", c.path, err)
		}
		if e.Progress != nil && onProgress != nil {
			onProgress(*e.Progress)
		}
		if e.Result != nil {
			return *e.Result, resultError(*e.Result)
		}
	}
	if err := lines.Err(); err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return ResultEvent{}, fmt.Errorf("socket %s: %w", c.path, err)
	}
	return ResultEvent{}, fmt.Errorf("socket %s: the daemon stopped before it answered", c.path)
}

func resultError(r ResultEvent) error {
	switch {
	case r.Error == "":
		return nil
	case r.Kind == "" && r.Unknown: // by a daemon that does not know kinds yet
		r.Kind = KindUnknownImage
	}
	return &Error{Kind: r.Kind, Text: r.Error, Moved: r.Moved}
}

func (c *Client) do(ctx context.Context, method, path string, body []byte) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://daemon"+path, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("socket %s: %w", c.path, err)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		op, ok := errors.AsType[*net.OpError](err)
		switch {
		case ok && op.Op == "dial" && errors.Is(err, fs.ErrPermission):
			return nil, fmt.Errorf("socket %s: %w", c.path, fs.ErrPermission)
		case ok && op.Op == "dial" && errors.Is(op.Err, syscall.EAGAIN): // connect(2): its queue is full
			return nil, fmt.Errorf("socket %s: %w", c.path, ErrBusy)
		case ok && op.Op == "dial":
			return nil, fmt.Errorf("socket %s: %w: %w", c.path, ErrNoDaemon, op.Err)
		}
		return nil, fmt.Errorf("socket %s: %w", c.path, err)
	}
	if resp.StatusCode == http.StatusOK {
		return resp.Body, nil
	}
	defer resp.Body.Close()
	msg, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
	return nil, fmt.Errorf("socket %s: %s: %s", c.path, resp.Status, bytes.TrimSpace(msg))
}
