// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"errors"
	"strings"
	"time"
	"unicode"

	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// Holder is the part of the daemon that keeps the holds of persons. Both
// functions give the repositories in question, or "*" for all.
type Holder interface {
	// Hold keeps images from being applied until a time; zero: until Resume.
	Hold(ctx context.Context, names []string, all bool, reason string, until time.Time) ([]string, error)
	// Resume takes holds back, and gives those that were there.
	Resume(ctx context.Context, names []string, all bool) ([]string, error)
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

// ResumeRequest names what is held no more.
type ResumeRequest struct{ plan.Which }

func (r ResumeRequest) check() error { return r.Check() }

// Hold has the daemon hold images. It waits for the cycle that runs.
func (c *Client) Hold(ctx context.Context, req HoldRequest) ([]string, error) {
	res, err := c.stream(ctx, "/v1/hold", req, nil)
	return res.Held, err
}

// Resume has the daemon take holds back, and gives those that were there. It
// waits for the cycle that runs.
func (c *Client) Resume(ctx context.Context, req ResumeRequest) ([]string, error) {
	res, err := c.stream(ctx, "/v1/resume", req, nil)
	return res.Held, err
}

func (s *Server) hold(req HoldRequest) work {
	return func(ctx context.Context, _ func(status.Progress)) (result ResultEvent, err error) {
		result.Held, err = s.daemon.Hold(ctx, req.Images, req.All, req.Reason, req.Until)
		return result, err
	}
}

func (s *Server) resume(req ResumeRequest) work {
	return func(ctx context.Context, _ func(status.Progress)) (result ResultEvent, err error) {
		result.Held, err = s.daemon.Resume(ctx, req.Images, req.All)
		return result, err
	}
}
