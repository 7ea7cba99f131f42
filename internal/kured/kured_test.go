// SPDX-License-Identifier: Apache-2.0

package kured

import (
	"bufio"
	"bytes"
	_ "embed"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var now = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// annotations are values, and what kured's pkg/daemonsetlock at 0ab10e3a said of each: the holder that another node
// met in a kured with one node (Acquire), and the nodes that hold the lock in one with several (Holding).
//
//go:embed testdata/annotations.jsonl
var annotations []byte

func TestAnnotationsAreReadAsByKured(t *testing.T) {
	t.Parallel()
	counted := map[string]int{}
	for lines := bufio.NewScanner(bytes.NewReader(annotations)); lines.Scan(); {
		var by struct {
			Annotation             string
			One                    *string
			Several                []string
			OneError, SeveralError bool
		}
		require.NoError(t, json.Unmarshal(lines.Bytes(), &by))
		nodes, err := holders(by.Annotation, now)
		isSeveral := strings.Contains(by.Annotation, `"locks":[`) || strings.Contains(by.Annotation, `"maxOwners"`)
		switch {
		case err != nil && by.OneError != by.SeveralError:
			counted["unreadable"]++ // by one of the two
		case by.OneError && by.SeveralError, isSeveral && by.SeveralError, !isSeveral && by.OneError:
			counted["unreadable"]++
			require.Error(t, err, by.Annotation)
		case isSeveral:
			counted["several"]++
			require.NoError(t, err, by.Annotation)
			require.Subset(t, nodes, by.Several, by.Annotation)
			require.Equal(t, len(by.Several) > 0, len(nodes) > 0, by.Annotation)
		case by.One == nil:
			counted["free"]++
			require.NoError(t, err, by.Annotation)
			require.Empty(t, nodes, by.Annotation)
		default:
			counted["one"]++
			require.NoError(t, err, by.Annotation)
			require.Len(t, nodes, 1, by.Annotation)
			if !strings.Contains(by.Annotation, `\u00`) {
				require.Equal(t, *by.One, nodes[0], by.Annotation)
			}
		}
	}
	for _, kind := range []string{"unreadable", "several", "free", "one"} {
		assert.Greater(t, counted[kind], 50, kind)
	}
}

// at returns the lock behind an API server with one answer, and what the server is asked.
func at(t *testing.T, code int, body string) (l Lock, asked *[]string) {
	t.Helper()
	asked = &[]string{}
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		*asked = append(*asked, r.Method+" "+r.URL.Path+" "+r.Header.Get("Authorization"))
		w.WriteHeader(code)
		_, _ = w.Write([]byte(body))
	}))
	t.Cleanup(s.Close)
	ca := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf("apiVersion: v1\nkind: Config\ncurrent-context: c\n"+
		"clusters: [{name: k, cluster: {server: %q, certificate-authority: ca.pem}}]\n"+
		"users: [{name: u, user: {token: secret}}]\ncontexts: [{name: c, context: {cluster: k, user: u}}]\n", s.URL)
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(filepath.Dir(path), "ca.pem"), []byte(ca), 0o600))
	return Lock{DaemonSet: "kube-system/kured", Kubeconfig: path, Now: func() time.Time { return now }}, asked
}

// What the API server answers: without the DaemonSet nobody holds the lock, and what is not known is an error.
func TestNodes(t *testing.T) {
	t.Parallel()
	set := func(annotations string) string {
		return `{"kind": "DaemonSet", "metadata": {"namespace": "kube-system", "name": "kured", "annotations": {` + annotations + `}}}`
	}
	status := func(reason, kind string) string {
		return `{"kind": "Status", "reason": "` + reason + `", "message": "as the test wants", "details": {"kind": "` + kind + `"}}`
	}
	for title, c := range map[string]struct {
		code  int
		body  string
		nodes []string
		err   string
	}{
		"a node":            {200, set(`"weave.works/kured-node-lock": "{\"nodeID\":\"node-2\"}"`), []string{"node-2"}, ""},
		"nobody":            {200, set(`"other": "x"`), nil, ""},
		"no DaemonSet":      {404, status("NotFound", "daemonsets"), nil, ""},
		"no such path":      {404, status("NotFound", ""), nil, "404: as the test wants"},
		"a proxy's page":    {404, "<html>", nil, "404: the answer is not from an API server"},
		"no permission":     {403, status("Forbidden", "daemonsets"), nil, "403: as the test wants"},
		"a wrong value":     {200, set(`"weave.works/kured-node-lock": "node-2"`), nil, "annotation weave.works/kured-node-lock: invalid character"},
		"another object":    {200, strings.Replace(set(""), `"kured"`, `"other"`, 1), nil, "the answer is not this DaemonSet"},
		"no JSON":           {200, "ok", nil, "the answer is not this DaemonSet"},
		"a redirect":        {307, "", nil, "307: the answer is not from an API server"},
		"an endless answer": {200, strings.Repeat(" ", maxBody+1), nil, "too large"},
	} {
		l, asked := at(t, c.code, c.body)
		nodes, err := l.Nodes(t.Context())
		assert.Equal(t, c.nodes, nodes, title)
		assert.Equal(t, []string{"GET /apis/apps/v1/namespaces/kube-system/daemonsets/kured Bearer secret"}, *asked, title)
		if c.err == "" {
			require.NoError(t, err, title)
			continue
		}
		require.ErrorContains(t, err, "lock of kured in DaemonSet kube-system/kured", title)
		require.ErrorContains(t, err, c.err, title)
	}
	l, _ := at(t, 200, set(""))
	l.Kubeconfig = "/none"
	_, err := l.Nodes(t.Context())
	require.ErrorContains(t, err, "kubeconfig /none: no such file")
}

func TestManyNodesAreCut(t *testing.T) {
	t.Parallel()
	nodes, err := holders(`{"locks": [`+strings.Repeat(`{"nodeID": "n"},`, maxNodes)+`{"nodeID": "n"}]}`, now)
	require.NoError(t, err)
	assert.Len(t, nodes, maxNodes+1)
	assert.Equal(t, "others", nodes[maxNodes])
}
