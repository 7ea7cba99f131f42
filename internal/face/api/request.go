// SPDX-License-Identifier: Apache-2.0

package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
)

// request is the body of a request.
type request interface {
	// check returns an error for a request that is not valid.
	check() error
}

// handler decodes and checks the body of a request, and does its work.
func handler[R request](s *Server, do func(R) work) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var req R
		err := decode(http.MaxBytesReader(w, r.Body, maxRequest), &req)
		if err == nil {
			err = req.check()
		}
		if err != nil {
			http.Error(w, path.Base(r.URL.Path)+": request: "+err.Error(), http.StatusBadRequest)
			return
		}
		s.stream(w, r, do(req))
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
