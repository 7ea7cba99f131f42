// SPDX-License-Identifier: Apache-2.0

package verifies

import (
	"bytes"
	"io"
	"net/http"
	"strings"
)

// Host is the registry's host.
const Host = "registry.example"

// Registry is a registry with a single repository. It answers requests without a network.
type Registry struct {
	Repository string              `json:"repository"`
	Tags       map[string]string   `json:"tags"`      // digests
	Manifests  map[string]Document `json:"manifests"` // by digest
	Blobs      map[string][]byte   `json:"blobs"`     // by digest
	Referrers  map[string][]byte   `json:"referrers"` // an index by digest; nil: a registry without the API
}

// Document is a manifest or an index.
type Document struct {
	MediaType string `json:"mediaType"`
	Body      []byte `json:"body"`
}

// RoundTrip answers as a registry does.
func (r *Registry) RoundTrip(q *http.Request) (*http.Response, error) {
	status, mediaType, body := r.get(q.URL.Path)
	if body == nil {
		body = []byte{}
	}
	a := &http.Response{
		StatusCode: status, Status: http.StatusText(status), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {mediaType}}, ContentLength: int64(len(body)), Request: q,
		Body: io.NopCloser(bytes.NewReader(body)),
	}
	if q.Method == http.MethodHead {
		a.Body = http.NoBody
	}
	return a, nil
}

func (r *Registry) get(path string) (status int, mediaType string, body []byte) {
	if path == "/v2/" {
		return http.StatusOK, "application/json", []byte("{}")
	}
	kind, name, _ := strings.Cut(strings.TrimPrefix(path, "/v2/"+r.Repository+"/"), "/")
	switch kind {
	case "manifests":
		if d, tagged := r.Tags[name]; tagged {
			name = d
		}
		if m, ok := r.Manifests[name]; ok {
			return http.StatusOK, m.MediaType, m.Body
		}
	case "blobs":
		if b, ok := r.Blobs[name]; ok {
			return http.StatusOK, "application/octet-stream", b
		}
	case "referrers":
		if r.Referrers == nil {
			break
		}
		if list, ok := r.Referrers[name]; ok {
			return http.StatusOK, "application/vnd.oci.image.index.v1+json", list
		}
		return http.StatusOK, "application/vnd.oci.image.index.v1+json",
			[]byte(`{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[]}`)
	}
	return http.StatusNotFound, "application/json", []byte(`{"errors":[]}`)
}
