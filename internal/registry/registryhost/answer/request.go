// SPDX-License-Identifier: Apache-2.0

package answer

import (
	"bufio"
	"bytes"
	"errors"
	"net/textproto"
	"net/url"
	"strconv"
	"strings"

	"github.com/kubic-project/image-update-agent/agent/localregistry/table"
)

// request is the part of a request that decides about its answer.
type request struct {
	isHead bool
	target *url.URL // nil: none of a manifest
	agent  string   // its User-Agent
}

// parse reads the request line and the headers. It accepts fewer requests than net/http, and understands each as
// net/http does: a request that has a body, or two hosts, is refused.
func parse(data []byte) (request, error) {
	reader := textproto.NewReader(bufio.NewReader(bytes.NewReader(data)))
	line, err := reader.ReadLine()
	if err != nil {
		return request{}, err
	}
	method, rest, _ := strings.Cut(line, " ")
	target, protocol, _ := strings.Cut(rest, " ")
	if method == "" || protocol != "HTTP/1.1" && protocol != "HTTP/1.0" {
		return request{}, errors.New("not HTTP/1")
	}
	header, err := reader.ReadMIMEHeader()
	if err != nil {
		return request{}, err
	}
	r := request{isHead: method == "HEAD", agent: header.Get("User-Agent")}
	hasBody := header["Transfer-Encoding"] != nil || header["Content-Length"] != nil || header["Trailer"] != nil
	if hasBody || len(header["Host"]) > 1 || !strings.HasPrefix(target, "/") {
		return r, nil
	}
	r.target, err = url.ParseRequestURI(target)
	return r, err
}

// answer decides about a request: the HEAD of a manifest in the table is Served, with its entry.
func answer(r request, t table.Table) (Result, table.Entry) {
	if !r.isHead || r.target == nil {
		return Refused, table.Entry{}
	}
	repository, reference, ok := manifestOf(r.target)
	query, err := url.ParseQuery(r.target.RawQuery)
	if !ok || err != nil || len(query["ns"]) != 1 {
		return Refused, table.Entry{}
	}
	find := t.Tag
	if strings.Contains(reference, ":") { // a tag has no colon and a digest has one (distribution's reference grammar)
		find = t.Digest
	}
	entry, found := find(query.Get("ns"), repository, reference)
	if !found {
		return Unknown, table.Entry{}
	}
	return Served, entry
}

// manifestOf splits /v2/REPOSITORY/manifests/REFERENCE. Names need no escapes, so a URL with an escape is not a
// manifest's.
func manifestOf(u *url.URL) (repository, reference string, ok bool) {
	rest, api := strings.CutPrefix(u.Path, "/v2/")
	cut := strings.LastIndex(rest, "/manifests/")
	if !api || cut < 0 || u.RawPath != "" || u.Host != "" {
		return "", "", false
	}
	return rest[:cut], rest[cut+len("/manifests/"):], true
}

// response returns the response; empty: the connection is closed without one.
//
// A refusal makes containerd ask the next host. Of the errors of all hosts, 1.x shows the first one, and needs a
// response; 2.x shows a "not found" before all others, which would hide that upstream is unreachable, and shows the
// last closed connection after them.
func response(result Result, e table.Entry, agent string) string {
	switch {
	case result == Served:
		return "HTTP/1.1 200 OK\r\n" +
			"Content-Type: " + e.MediaType + "\r\n" +
			"Content-Length: " + strconv.FormatInt(e.Size, 10) + "\r\n" +
			"Docker-Content-Digest: " + e.Digest + "\r\n" +
			"Docker-Distribution-Api-Version: registry/2.0\r\n" +
			"Connection: close\r\n\r\n"
	case hangsUpOn(agent):
		return ""
	default:
		return "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
	}
}

// hangsUpOn reports whether a User-Agent is containerd 2.0 or later.
func hangsUpOn(agent string) bool {
	version, is := strings.CutPrefix(agent, "containerd/")
	major, _, hasMinor := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	number, err := strconv.ParseUint(major, 10, 8)
	return is && hasMinor && err == nil && number > 1
}
