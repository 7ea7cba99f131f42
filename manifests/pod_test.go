// SPDX-License-Identifier: Apache-2.0

package manifests_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/internal/base/yamledit"
	"github.com/kubic-project/image-update-agent/manifests"
)

// podHead precedes the containers; pod adds a container with one image.
const podHead = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  containers:\n"

func pod(image string) string { return podHead + "  - name: c\n    image: " + image + "\n" }

var noPodManifests = map[string]struct{ data, want string }{
	"empty file":            {"", "empty: no Pod in it"},
	"comments only":         {"# nothing\n", "empty: no Pod in it"},
	"empty first document":  {"---\n---\n" + pod("a:1"), "line 2: not a Pod: the document is not a mapping"},
	"scalar":                {"hello\n", "line 1: not a Pod: the document is not a mapping"},
	"list":                  {"- a\n", "line 1: not a Pod: the document is not a mapping"},
	"other mapping":         {"# c\na: b\n", "line 2: not a Pod: no kind"},
	"v1.List":               {"apiVersion: v1\nkind: List\nitems: []\n", "line 1: kind List: kubelet runs one Pod per file, not a list"},
	"PodList":               {"apiVersion: v1\nkind: PodList\nitems: []\n", "line 1: kind PodList: kubelet runs one Pod per file, not a list"},
	"Deployment":            {"apiVersion: apps/v1\nkind: Deployment\n", `line 1: kind "Deployment": not a Pod`},
	"kind in another case":  {"apiVersion: v1\nKind: Pod\n", "line 1: kubelet reads it as a Pod, but the agent does not: write the key kind in lower case"},
	"other version":         {"apiVersion: v2\nkind: Pod\n", `line 1: apiVersion "v2": want v1`},
	"no version":            {"kind: Pod\n", `line 1: apiVersion "": want v1`},
	"no metadata":           {"apiVersion: v1\nkind: Pod\nspec: {containers: [{image: a}]}\n", "line 1: Pod without metadata.name"},
	"empty name":            {"apiVersion: v1\nkind: Pod\nmetadata: {name: ''}\nspec: {containers: [{image: a}]}\n", "line 1: Pod without metadata.name"},
	"number as name":        {"apiVersion: v1\nkind: Pod\nmetadata: {name: 1}\nspec: {containers: [{image: a}]}\n", "line 1: Pod without metadata.name"},
	"no spec":               {"apiVersion: v1\nkind: Pod\nmetadata: {name: p}\n", "line 1: Pod p without containers"},
	"no containers":         {"apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: []}\n", "line 1: Pod p without containers"},
	"null containers":       {"apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  containers:\n", "line 1: Pod p without containers"},
	"containers mapping":    {"apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  containers:\n    a: {image: b}\n", "line 6: spec.containers: not a list"},
	"container as text":     {podHead + "  - a\n", "line 6: spec.containers[0]: not a mapping"},
	"init containers text":  {pod("a:1") + "  initContainers: x\n", "line 8: spec.initContainers: not a list"},
	"volumes text":          {pod("a:1") + "  volumes: [x]\n", "line 8: spec.volumes[0]: not a mapping"},
	"broken yaml":           {pod("a:1") + "  volumes: [\n", "line 8: did not find expected node content"},
	"broken later document": {pod("a:1") + "---\na: [\n", "line 9: did not find expected node content"},
	"two of one name":       {podHead + "  - {name: c, image: a:1}\n  - {name: c, image: b:1}\n", "line 7: container c: the container in line 6 has the same name, so kubelet refuses the pod"},
	"init of that name":     {pod("a:1") + "  initContainers: [{name: c, image: b:1}]\n", "line 8: container c: the container in line 6 has the same name, so kubelet refuses the pod"},
	"duplicate image":       {pod("a:1") + "    image: b:1\n", `line 8: duplicate key "image", first on line 7`},
	"not json":              {`{apiVersion: v1, kind: Pod}`, "line 1: begins with { and so is read as JSON: invalid character 'a' looking for beginning of object key string"},
	"text behind json":      {`{"apiVersion": "v1"}` + "\n---\na: 1\n", "line 2: begins with { and so is read as JSON: invalid character '-' after top-level value"},
	"comma at a JSON's end": {"{\n  \"kind\": \"Pod\",\n  \"a\": [1],\n}\n", "line 4: begins with { and so is read as JSON: invalid character '}' looking for beginning of object key string"},
	"no comma in JSON":      {"{\r\n  \"kind\": \"Pod\",\r\n  \"a\": 1\r\n  \"b\": 2\r\n}\r\n", "line 4: begins with { and so is read as JSON: invalid character '\"' after object key:value pair"},
	"cut JSON":              {"{\n  \"kind\": \"Pod\",\n\n", "line 2: begins with { and so is read as JSON: unexpected end of JSON input"},
	"too large":             {string(make([]byte, yamledit.MaxBytes+1)), "1048577 bytes: larger than the limit of 1048576"},
}

func TestParseRejects(t *testing.T) {
	t.Parallel()
	for name, tc := range noPodManifests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, err := manifests.Parse([]byte(tc.data))
			require.EqualError(t, err, tc.want)
			assert.Empty(t, p)
		})
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	p, err := manifests.Parse([]byte(`# größe
apiVersion: v1
kind: Pod
metadata:
  name: velum
  namespace: kube-system
spec:
  volumes:
  - {"näme": x, name: model, image: {reference: r.example/model:1, pullPolicy: Never}}
  containers:
  - name: dashboard
    image: 'sles12/velum:4.0.0' # comment
    args: [--sidecar-image, "sles12/side:1"]
  initContainers:
  - image: sles12/init@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef
    imagePullPolicy: Always
`))
	require.NoError(t, err)
	assert.Equal(t, manifests.Pod{Name: "velum", Namespace: "kube-system", Images: []manifests.Image{
		{Path: "spec.containers[0].image", Line: 12, Column: 12, Container: "dashboard", Kind: manifests.KindContainer, Reference: "sles12/velum:4.0.0", Editable: true},
		{Path: "spec.containers[0].args[1]", Line: 13, Column: 29, Container: "dashboard", Kind: manifests.KindArgument, Reference: "sles12/side:1", Reason: manifests.ReasonArgument},
		{Path: "spec.initContainers[0].image", Line: 15, Column: 12, Kind: manifests.KindInit, Reference: "sles12/init@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef", PullPolicy: "Always", Reason: manifests.ReasonDigest},
		{Path: "spec.volumes[0].image.reference", Line: 9, Column: 49, Container: "model", Kind: manifests.KindVolume, Reference: "r.example/model:1", PullPolicy: "Never", Editable: true},
	}, Grace: 30 * time.Second}, p.Pod)
}

func TestParseDefaultsTheNamespace(t *testing.T) {
	t.Parallel()
	p, err := manifests.Parse([]byte(pod("a:1")))
	require.NoError(t, err)
	assert.Equal(t, "default", p.Namespace)
}

// The expected counts are those of the packages' templates and of kubeadm's manifests.
func TestParseTemplates(t *testing.T) {
	t.Parallel()
	for file, images := range map[string]int{
		"haproxy.yaml": 1, "private.yaml": 2, "public.yaml": 14,
		"etcd.yaml": 1, "kube-apiserver.yaml": 1, "kube-controller-manager.yaml": 1, "kube-scheduler.yaml": 1,
	} {
		data, err := os.ReadFile(filepath.Join("testdata/templates", file))
		require.NoError(t, err)
		p, err := manifests.Parse(data)
		require.NoError(t, err, file)
		assert.Len(t, p.Images, images, file)
		for _, img := range p.Images {
			assert.True(t, img.Editable, "%s: %s: %s", file, img.Path, img.Reason)
		}
	}
}

// Only kubeadm's own labels, in its namespace, mark a control-plane component.
func TestParseKubeadmControlPlane(t *testing.T) {
	t.Parallel()
	for metadata, want := range map[string]string{
		"namespace: kube-system, labels: {component: etcd, tier: control-plane}":                    "etcd",
		"namespace: kube-system, labels: {component: kube-apiserver, tier: control-plane}":          "kube-apiserver",
		"namespace: kube-system, labels: {component: kube-controller-manager, tier: control-plane}": "kube-controller-manager",
		"namespace: kube-system, labels: {component: kube-scheduler, tier: control-plane}":          "kube-scheduler",
		"namespace: kube-system, labels: {component: kube-vip, tier: control-plane}":                "",
		"namespace: kube-system, labels: {component: etcd}":                                         "",
		"namespace: kube-system, labels: [component, tier]":                                         "",
		"namespace: kube-system":                         "",
		"labels: {component: etcd, tier: control-plane}": "",
	} {
		p, err := manifests.Parse([]byte("apiVersion: v1\nkind: Pod\nmetadata: {name: x, " + metadata +
			"}\nspec: {containers: [{name: x, image: \"a:1\"}]}\n"))
		require.NoError(t, err, metadata)
		assert.Equal(t, want, p.Component, metadata)
	}
}
