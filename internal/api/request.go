// SPDX-License-Identifier: Apache-2.0

package api

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"path"
)

// request is what the body of a request says.
type request interface {
	// check tells what of it makes no sense.
	check() error
}

// asked is the handler of a request with a body. Nothing is done for a bad one.
func asked[R request](s *Server, do func(R) work) http.HandlerFunc {
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

// decode reads a body. What it does not know it refuses: a newer client may have
// meant something with it.
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
