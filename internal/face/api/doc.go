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
//	POST /v1/apply    ApplyRequest; stream of Event, the last with Outcomes
//	POST /v1/rollback RollbackRequest; the same
//	POST /v1/hold     HoldRequest; stream of Event, the last with Held
//	POST /v1/resume   ResumeRequest; stream of Event, the last with Held
//	POST /v1/reload   stream of Event, the last without anything but an error
package api

import (
	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// Event is one line of a stream.
type Event struct {
	Progress *status.Progress `json:"progress,omitempty"`
	Result   *ResultEvent     `json:"result,omitempty"`
}

// ResultEvent ends a stream. Error is empty where all went well.
type ResultEvent struct {
	Error    string           `json:"error,omitempty"`   // for people
	Kind     string           `json:"kind,omitempty"`    // of the error: KindFailed ...
	Unknown  bool             `json:"unknown,omitempty"` // the kind is KindUnknownImage
	Status   *status.Status   `json:"status,omitempty"`  // missing where the daemon ended before it had one
	Outcomes []status.Outcome `json:"outcomes,omitempty"`
	Moved    []plan.Moved     `json:"moved,omitempty"` // of the kind KindMoved
	Held     []string         `json:"held,omitempty"`  // repositories, or "*"
}

// ApplyRequest selects what is approved.
type ApplyRequest struct{ agent.ApplyRequest }

func (r ApplyRequest) check() error { return checkApply(r.ApplyRequest) }

// RollbackRequest selects what returns to the release before.
type RollbackRequest struct{ plan.Which }

func (r RollbackRequest) check() error { return r.Check() }

// maxRequest bounds a request's body, in bytes: names of a few hundred images.
const maxRequest = 64 << 10

// maxLine bounds one event that a client reads, in bytes: the largest status that the daemon publishes.
const maxLine = status.MaxStatus

// maxClients bounds the connections to the acting socket, and the acting calls on the bus.
const maxClients = 16

// maxReaders bounds the connections to the status socket, which is everybody's.
const maxReaders = 64
