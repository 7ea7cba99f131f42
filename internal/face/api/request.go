// SPDX-License-Identifier: Apache-2.0

// Package api lets other programs talk to the daemon: HTTP and JSON over two
// unix sockets. The acting one (agent.sock) is root's alone and can do
// everything; the status one (status.sock) is for everybody and can only read.
//
// Requests that take long answer with a stream of events, one JSON object a
// line: any number of progress events, then one result. A client that hangs up, or
// ends its side of the connection, does not stop the work it asked for once that has
// begun. What still waits for the cycle before is not begun, and of an apply or a
// rollback no pod whose restart has not begun: the result says which.
//
//	GET  /metrics     numbers for Prometheus, where the daemon has them
//	GET  /v1/status   status.Status
//	GET  /v1/watch    stream of status.Status, on the status socket
//	POST /v1/check    stream of Event, the last with Status
//	POST /v1/apply    agent.ApplyRequest; stream of Event, the last with Outcomes
//	POST /v1/rollback plan.Which; the same
//	POST /v1/hold     HoldRequest; stream of Event, the last with Held
//	POST /v1/resume   plan.Which; stream of Event, the last with Held
//	POST /v1/reload   stream of Event, the last without anything but an error
package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"strings"
	"time"
	"unicode"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/agent/localregistry"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
)

// Event is one line of a stream.
type Event struct {
	Progress *status.Progress `json:"progress,omitempty"`
	Result   *ResultEvent     `json:"result,omitempty"`
}

// ResultEvent ends a stream. Error is empty on success.
type ResultEvent struct {
	Error    string           `json:"error,omitempty"`   // for people
	Kind     string           `json:"kind,omitempty"`    // of the error: KindFailed ...
	Unknown  bool             `json:"unknown,omitempty"` // the kind is KindUnknownImage
	Status   *status.Status   `json:"status,omitempty"`  // missing where the daemon ended before it had one
	Outcomes []status.Outcome `json:"outcomes,omitempty"`
	Moved    []plan.Moved     `json:"moved,omitempty"` // of the kind KindMoved
	Held     []string         `json:"held,omitempty"`  // repositories, or "*"
}

// maxRequest bounds a request's body, in bytes: names of a few hundred images.
const maxRequest = 64 << 10

// maxLine bounds one event that a client reads, in bytes: the largest status that the daemon publishes.
const maxLine = status.MaxStatus

// maxClients bounds the connections to the acting socket, and the acting calls on the bus.
const maxClients = 16

// maxReaders bounds the connections to the status socket, which is everybody's.
const maxReaders = 64

// handler decodes and checks the body of a request, and does its work.
func handler[R any](
	s *Server, check func(R) error,
	do func(ctx context.Context, req R, onProgress func(status.Progress)) (ResultEvent, error),
) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var req R
		err := decode(http.MaxBytesReader(w, r.Body, maxRequest), &req)
		if err == nil {
			err = check(req)
		}
		if err != nil {
			http.Error(w, path.Base(r.URL.Path)+": request: "+err.Error(), http.StatusBadRequest)
			return
		}
		s.stream(w, r, func(ctx context.Context, onProgress func(status.Progress)) (ResultEvent, error) {
			return do(ctx, req, onProgress)
		})
	}
}

// outcomes is the work of an apply or a rollback.
func outcomes[R any](
	do func(context.Context, R, func(status.Progress)) ([]status.Outcome, error),
) func(context.Context, R, func(status.Progress)) (ResultEvent, error) {
	return func(ctx context.Context, req R, onProgress func(status.Progress)) (result ResultEvent, err error) {
		result.Outcomes, err = do(ctx, req, onProgress)
		return result, err
	}
}

// checkApply checks what an apply selects, and the digests that it expects.
func checkApply(req agent.ApplyRequest) error {
	if err := req.Check(); err != nil {
		return err
	}
	for _, e := range req.Expect {
		if err := e.Digest.Validate(); err != nil {
			return fmt.Errorf("expect %s: %q: %w", outside.Line(e.Image, maxWord), outside.Line(e.Digest.String(), maxWord), err)
		}
	}
	return nil
}

// decode reads a body. It refuses unknown fields: a newer client may have meant
// something by them.
func decode(body io.Reader, req any) error {
	dec := json.NewDecoder(body)
	dec.DisallowUnknownFields()
	if err := dec.Decode(req); err != nil {
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more than one JSON value")
	}
	return nil
}

// HoldRequest names what is held, and why.
type HoldRequest struct {
	plan.Which

	Reason string    `json:"reason,omitempty"`
	Until  time.Time `json:"until,omitzero"` // zero: until it is taken back
}

func (r HoldRequest) check() error { return errors.Join(r.Check(), oneLine(r.Reason)) }

// oneLine: a reason stands in logs and in lines of the status.
func oneLine(reason string) error {
	if strings.ContainsFunc(reason, unicode.IsControl) {
		return errors.New("reason: control character")
	}
	return nil
}

// Hold makes the daemon hold images. It waits for the running cycle.
func (c *Client) Hold(ctx context.Context, req HoldRequest) ([]string, error) {
	res, err := c.stream(ctx, "/v1/hold", req, nil)
	return res.Held, err
}

// Resume makes the daemon remove holds, and returns those that existed. It waits for the running cycle.
func (c *Client) Resume(ctx context.Context, which plan.Which) ([]string, error) {
	res, err := c.stream(ctx, "/v1/resume", which, nil)
	return res.Held, err
}

func (s *Server) hold(ctx context.Context, req HoldRequest, _ func(status.Progress)) (result ResultEvent, err error) {
	result.Held, err = s.daemon.Hold(ctx, req.Images, req.All, req.Reason, req.Until)
	return result, err
}

func (s *Server) resume(ctx context.Context, req plan.Which, _ func(status.Progress)) (result ResultEvent, err error) {
	result.Held, err = s.daemon.Resume(ctx, req.Images, req.All)
	return result, err
}

// The kinds of errors, in ResultEvent.Kind and, behind BusName.Error., on the bus.
const (
	KindFailed       = "Failed"
	KindUnknownImage = "UnknownImage" // a name in the request fits nothing
	KindInvalidArgs  = "InvalidArgs"
	KindNothingToDo  = "NothingToDo"
	KindHeld         = "Held"
	KindCanceled     = "Canceled"   // the caller left before it began
	KindMoved        = "OfferMoved" // an offer is not what the caller expects
)

// kindOf is the kind of an error of the daemon.
func kindOf(err error) string {
	_, isMoved := errors.AsType[*plan.MovedError](err)
	switch {
	case isMoved:
		return KindMoved
	case errors.Is(err, agent.ErrCanceled):
		return KindCanceled
	case errors.Is(err, plan.ErrUnknownImage):
		return KindUnknownImage
	case errors.Is(err, agent.ErrHoldEnds), errors.Is(err, agent.ErrReason), errors.Is(err, plan.ErrWhich),
		errors.Is(err, plan.ErrNotSelected), errors.Is(err, agent.ErrNoLock),
		errors.Is(err, localregistry.ErrNoRegistry):
		return KindInvalidArgs
	case errors.Is(err, agent.ErrNothingToDo):
		return KindNothingToDo
	case errors.Is(err, release.ErrHeld):
		return KindHeld
	default:
		return KindFailed
	}
}

// Error is an error with which the daemon has answered. By its kind, errors.Is finds plan.ErrUnknownImage in it, or
// release.ErrHeld (also for KindMoved).
type Error struct {
	Kind  string // a newer daemon may have others
	Text  string // for people
	Moved []plan.Moved
}

func (e *Error) Error() string { return e.Text }

// Is compares the kinds.
func (e *Error) Is(target error) bool {
	switch target {
	case plan.ErrUnknownImage:
		return e.Kind == KindUnknownImage
	case release.ErrHeld:
		return e.Kind == KindHeld || e.Kind == KindMoved
	default:
		return false
	}
}
