// SPDX-License-Identifier: Apache-2.0

package node

import (
	"io"
	"log"
	"net/http"
	"net/http/httputil"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Kind is the kind of a request of the OCI distribution API.
type Kind string

// The kinds of requests.
const (
	Ping     Kind = "ping" // /v2/
	Manifest Kind = "manifest"
	Blob     Kind = "blob"
	Upload   Kind = "upload"
	Tags     Kind = "tags" // tags/list
	Other    Kind = "other"
)

// Request is one request that reached the front. Requests are in the order in which they ended.
type Request struct {
	Method     string
	Kind       Kind
	Registry   string // the parameter ns: the registry on whose behalf containerd asks a host of hosts.toml
	Repository string
	Reference  string // tag or digest
	Status     int    // as sent; 0 if none was
	Bytes      int64  // size of the response's body
	UserAgent  string
	Start      time.Time
}

// Requests are the requests that a registry got.
type Requests []Request

// Of returns the requests of a client, by the prefix of its User-Agent.
func (rs Requests) Of(client string) Requests {
	return slices.DeleteFunc(slices.Clone(rs), func(r Request) bool { return !strings.HasPrefix(r.UserAgent, client) })
}

// Count counts requests; an empty method means all methods.
func (rs Requests) Count(method string, kind Kind) int {
	var count int
	for _, r := range rs {
		if (method == "" || r.Method == method) && r.Kind == kind {
			count++
		}
	}
	return count
}

// Bytes sums the bodies of the responses to requests of a kind.
func (rs Requests) Bytes(kind Kind) int64 {
	var sum int64
	for _, r := range rs {
		if r.Kind == kind {
			sum += r.Bytes
		}
	}
	return sum
}

// Requests returns the requests since the start, or since Forget. It includes a request before the client has read the
// end of the response.
func (r *Registry) Requests() Requests {
	r.lock.Lock()
	defer r.lock.Unlock()
	return slices.Clone(r.requests)
}

// Forget clears the recorded requests.
func (r *Registry) Forget() {
	r.lock.Lock()
	defer r.lock.Unlock()
	r.requests = nil
}

// api matches the paths of https://github.com/opencontainers/distribution-spec, section Endpoints.
var api = regexp.MustCompile(`^/v2/(.+)/(manifests|blobs/uploads|blobs|tags)(?:/(.*))?$`)

func parse(r *http.Request) Request {
	q := Request{Method: r.Method, Kind: Other, Registry: r.URL.Query().Get("ns"), UserAgent: r.UserAgent()}
	if r.URL.Path == "/v2/" {
		q.Kind = Ping
		return q
	}
	found := api.FindStringSubmatch(r.URL.Path)
	if found == nil {
		return q
	}
	q.Repository, q.Reference = found[1], found[3]
	q.Kind = map[string]Kind{"manifests": Manifest, "blobs/uploads": Upload, "blobs": Blob, "tags": Tags}[found[2]]
	return q
}

// proxy forwards requests to the registry.
func (r *Registry) proxy() *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL.Scheme, p.Out.URL.Host = "http", "registry"
			p.Out.Host = p.In.Host
		},
		Transport: r.backend,
		ErrorLog:  log.New(io.Discard, "", 0), // tests close connections on purpose
	}
}

// newFront returns the server that clients talk to.
func (r *Registry) newFront() *http.Server {
	proxy := r.proxy()
	return &http.Server{
		ErrorLog:          proxy.ErrorLog,
		ReadHeaderTimeout: time.Minute,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
			q := parse(request)
			q.Start = time.Now()
			slow := &slowWriter{ResponseWriter: w, ctx: request.Context(), line: &r.line}
			counted := &countedWriter{ResponseWriter: slow, head: request.Method == http.MethodHead}
			counted.record = sync.OnceFunc(func() { r.record(q, counted) })
			defer counted.record() // ReverseProxy panics if a client closes the connection
			r.lock.Lock()
			intercept := r.intercept
			r.lock.Unlock()
			if intercept == nil || !intercept(counted, request) {
				proxy.ServeHTTP(counted, request)
			}
		}),
	}
}

func (r *Registry) record(q Request, w *countedWriter) {
	r.lock.Lock()
	defer r.lock.Unlock()
	q.Status, q.Bytes = w.status, w.bytes
	r.requests = append(r.requests, q)
}

// countedWriter records the status and counts the body's bytes. It records the request before it writes the last of
// the response, since the client may have that before the handler returns: ReverseProxy flushes a header without a
// length at once.
type countedWriter struct {
	http.ResponseWriter
	head   bool // a response without a body
	status int
	bytes  int64
	record func()
}

// WriteHeader records the status.
func (w *countedWriter) WriteHeader(status int) {
	w.status = status
	if w.head {
		w.record()
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write counts the bytes.
func (w *countedWriter) Write(p []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	if end := w.bytes + int64(len(p)); w.Header().Get("Content-Length") == strconv.FormatInt(end, 10) {
		w.bytes = end
		w.record()
		return w.ResponseWriter.Write(p)
	}
	n, err := w.ResponseWriter.Write(p)
	w.bytes += int64(n)
	return n, err
}

// Unwrap gives http.ResponseController access to the connection (Hijack, deadlines, Flush).
func (w *countedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Hang returns an Intercept that holds requests of a kind until the client gives up.
func Hang(kind Kind) Intercept {
	return func(_ http.ResponseWriter, r *http.Request) bool {
		if parse(r).Kind != kind {
			return false
		}
		<-r.Context().Done()
		panic(http.ErrAbortHandler)
	}
}
