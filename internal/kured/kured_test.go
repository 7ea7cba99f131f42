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

// kured's settings as its chart, its manifest and people write them (cmd/kured/main.go of kured).
func TestAnnotationOf(t *testing.T) {
	t.Parallel()
	const other = "example.com/lock"
	args := func(words ...string) container { return container{Name: "kured", Args: words} }
	env := func(name, value string) []variable { return []variable{{Name: name, Value: value}} }
	from := []variable{{Name: "KURED_LOCK_ANNOTATION", ValueFrom: []byte(`{"configMapKeyRef": {}}`)}}
	node := []variable{{Name: "KURED_NODE_ID", ValueFrom: []byte(`{"fieldRef": {}}`)}}
	refs := []json.RawMessage{[]byte("{}")}
	for title, c := range map[string]struct {
		containers []container
		want, err  string
	}{
		"no settings":         {[]container{{Name: "kured", Command: []string{"/usr/bin/kured"}, Env: node}}, annotation, ""},
		"no containers":       {nil, annotation, ""},
		"with =":              {[]container{args("--period=1h", "--lock-annotation="+other)}, other, ""},
		"in two words":        {[]container{args("--lock-annotation", other, "--period=1h")}, other, ""},
		"in the command":      {[]container{{Command: []string{"/usr/bin/kured", "--lock-annotation=" + other}}}, other, ""},
		"behind a wrapper":    {[]container{{Command: []string{"tini", "--", "/usr/bin/kured"}, Args: []string{"--lock-annotation=" + other}}}, other, ""},
		"given twice":         {[]container{args("--lock-annotation=a", "--lock-annotation="+other)}, other, ""},
		"without a prefix":    {[]container{args("--lock-annotation=Lock_1.x")}, "Lock_1.x", ""},
		"a sidecar":           {[]container{{Name: "log", EnvFrom: refs, Args: []string{"--lock-annotation=x"}}, args("--lock-annotation=" + other)}, other, ""},
		"as a variable":       {[]container{{Name: "kured", Env: env("KURED_LOCK_ANNOTATION", other)}}, other, ""},
		"both":                {[]container{{Env: env("KURED_LOCK_ANNOTATION", other), Args: []string{"--lock-annotation=" + other}}}, other, ""},
		"with envFrom":        {[]container{{EnvFrom: refs, Args: []string{"--lock-annotation=" + other}}}, other, ""},
		"another flag":        {[]container{args("--message-template-drain=--lock-annotation=x", "--lock-annotations=x")}, annotation, ""},
		"the chart's":         {[]container{args("--ds-name=kured", "--ds-namespace=kube-system", "--lock-annotation="+other)}, other, ""},
		"a set of a variable": {[]container{args("--ds-namespace=$(NAMESPACE)")}, annotation, ""},

		"no value":               {[]container{args("--lock-annotation")}, "", "--lock-annotation has no value"},
		"an empty value":         {[]container{args("--lock-annotation=")}, "", `--lock-annotation: "" is not a name`},
		"another flag as value":  {[]container{args("--lock-annotation", "--period=1h")}, "", `"--period=1h" is not a name`},
		"of Kubernetes' value":   {[]container{args("--lock-annotation=$(LOCK)")}, "", `"$(LOCK)" is not a name`},
		"quoted":                 {[]container{args(`--lock-annotation="a"`)}, "", `is not a name`},
		"one dash":               {[]container{args("-lock-annotation=a")}, "", `cannot read --lock-annotation in "-lock-annotation=a"`},
		"a shell":                {[]container{{Command: []string{"sh", "-c", "exec kured --lock-annotation=a"}}}, "", "cannot read --lock-annotation in"},
		"a variable of a shell":  {[]container{{Command: []string{"sh", "-c", "KURED_LOCK_ANNOTATION=a kured"}}}, "", "cannot read --lock-annotation in"},
		"a variable from a map":  {[]container{{Name: "kured", Env: from}}, "", "KURED_LOCK_ANNOTATION is not a plain value"},
		"an empty variable":      {[]container{{Env: env("KURED_LOCK_ANNOTATION", "")}}, "", `KURED_LOCK_ANNOTATION: "" is not a name`},
		"variables from a map":   {[]container{{Name: "kured", EnvFrom: refs}}, "", `envFrom of container "kured" may set KURED_LOCK_ANNOTATION: give --lock-annotation in args`},
		"a variable differs":     {[]container{{Env: env("KURED_LOCK_ANNOTATION", "a"), Args: []string{"--lock-annotation=b"}}}, "", "--lock-annotation is b, but KURED_LOCK_ANNOTATION is a"},
		"two containers differ":  {[]container{{Name: "a", Args: []string{"--lock-annotation=a"}}, {Name: "b", Args: []string{"--lock-annotation=b"}}}, "", "two containers have different --lock-annotation: a and b"},
		"another DaemonSet":      {[]container{args("--ds-name=lock")}, "", "kured's lock is in kube-system/lock (--ds-namespace, --ds-name): set apply.kured to it"},
		"another namespace":      {[]container{{Env: env("KURED_DS_NAMESPACE", "reboots")}}, "", "kured's lock is in reboots/kured"},
		"another one of a chart": {[]container{args("--ds-name=lock", "--ds-namespace=reboots")}, "", "kured's lock is in reboots/lock"},
	} {
		got, err := annotationOf(c.containers, "kube-system/kured")
		assert.Equal(t, c.want, got, title)
		if c.err == "" {
			require.NoError(t, err, title)
			continue
		}
		require.ErrorContains(t, err, c.err, title)
	}
}

// The annotation of kured's settings counts, not the default one.
func TestNodesOfAnotherAnnotation(t *testing.T) {
	t.Parallel()
	body := func(args, annotations string) string {
		return `{"kind": "DaemonSet", "metadata": {"namespace": "kube-system", "name": "kured", "annotations": {` + annotations + `}},
			"spec": {"template": {"spec": {"containers": [{"name": "kured", "command": ["/usr/bin/kured"], "args": [` + args + `],
			"env": [{"name": "KURED_NODE_ID", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}]}]}}}}`
	}
	const held = `"{\"nodeID\":\"node-2\"}"`
	for title, c := range map[string]struct {
		body  string
		nodes []string
		err   string
	}{
		"held":              {body(`"--lock-annotation=x/y"`, `"x/y": `+held), []string{"node-2"}, ""},
		"free":              {body(`"--lock-annotation", "x/y"`, `"weave.works/kured-node-lock": `+held), nil, ""},
		"a wrong value":     {body(`"--lock-annotation=x/y"`, `"x/y": "node-2"`), nil, "annotation x/y: invalid character"},
		"cannot be read":    {body(`"--lock-annotation=$(X)"`, `"x/y": `+held), nil, `kube-system/kured: --lock-annotation: "$(X)" is not a name`},
		"another DaemonSet": {body(`"--ds-name=lock"`, ""), nil, "kube-system/kured: kured's lock is in kube-system/lock"},
	} {
		l, _ := at(t, 200, c.body)
		nodes, err := l.Nodes(t.Context())
		assert.Equal(t, c.nodes, nodes, title)
		if c.err == "" {
			require.NoError(t, err, title)
			continue
		}
		require.ErrorContains(t, err, "lock of kured in DaemonSet ", title)
		require.ErrorContains(t, err, c.err, title)
	}
}

func TestManyNodesAreCut(t *testing.T) {
	t.Parallel()
	nodes, err := holders(`{"locks": [`+strings.Repeat(`{"nodeID": "n"},`, maxNodes)+`{"nodeID": "n"}]}`, now)
	require.NoError(t, err)
	assert.Len(t, nodes, maxNodes+1)
	assert.Equal(t, "others", nodes[maxNodes])
}
