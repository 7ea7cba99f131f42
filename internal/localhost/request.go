// SPDX-License-Identifier: Apache-2.0

package localhost

import (
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/ownhost"
)

// answer decides about a request: the HEAD of a manifest that the table has is Served, with its entry.
func answer(r *http.Request, t ownhost.Table) (Result, ownhost.Entry) {
	repository, reference, ok := manifestOf(r.URL)
	query, err := url.ParseQuery(r.URL.RawQuery)
	if r.Method != http.MethodHead || !ok || err != nil || len(query["ns"]) != 1 {
		return Refused, ownhost.Entry{}
	}
	// A tag has no colon and a digest has one (distribution's reference grammar).
	find := func() (ownhost.Entry, bool) { return t.Tag(query.Get("ns"), repository, reference) }
	if strings.Contains(reference, ":") {
		find = func() (ownhost.Entry, bool) { return t.Digest(query.Get("ns"), repository, digest.Digest(reference)) }
	}
	entry, found := find()
	if !found {
		return Unknown, ownhost.Entry{}
	}
	return Served, entry
}

// manifestOf splits /v2/REPOSITORY/manifests/REFERENCE. Names need no escapes, so a URL with one is none of a manifest.
func manifestOf(u *url.URL) (repository, reference string, ok bool) {
	rest, api := strings.CutPrefix(u.Path, "/v2/")
	cut := strings.LastIndex(rest, "/manifests/")
	if !api || cut < 0 || u.RawPath != "" || u.Host != "" {
		return "", "", false
	}
	return rest[:cut], rest[cut+len("/manifests/"):], true
}

// response is what is sent back; nothing: the connection is closed without an answer.
//
// A refusal is for containerd to ask the next host. Of the errors of all hosts, 1.x shows the first one, and wants an
// answer; 2.x shows a "not found" above all others, which would hide that upstream is away, and the last hang-up below
// them.
func response(result Result, e ownhost.Entry, agent string) string {
	switch {
	case result == Served:
		return "HTTP/1.1 200 OK\r\n" +
			"Content-Type: " + e.MediaType + "\r\n" +
			"Content-Length: " + strconv.FormatInt(e.Size, 10) + "\r\n" +
			"Docker-Content-Digest: " + e.Digest.String() + "\r\n" +
			"Docker-Distribution-Api-Version: registry/2.0\r\n" +
			"Connection: close\r\n\r\n"
	case hangsUpOn(agent):
		return ""
	default:
		return "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
	}
}

var containerdVersion = regexp.MustCompile(`^containerd/v?([0-9]{1,3})\.`)

// hangsUpOn reports whether a User-Agent is containerd 2.0 or later.
func hangsUpOn(agent string) bool {
	found := containerdVersion.FindStringSubmatch(agent)
	return found != nil && found[1] != "0" && found[1] != "1"
}
