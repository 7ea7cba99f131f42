// SPDX-License-Identifier: Apache-2.0

package neighbours

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/internal/node/podfiles"
	"github.com/kubic-project/image-update-agent/manifests"
)

// podFile generates a pod manifest as people and programs write it, also with mistakes.
type podFile struct {
	r *rand.Rand
}

func (f podFile) one(of ...string) string { return of[f.r.IntN(len(of))] }

// rarely returns one of the odd values once in so many times, else the usual one.
func (f podFile) rarely(times int, usual string, odd ...string) string {
	if f.r.IntN(times) > 0 {
		return usual
	}
	return f.one(odd...)
}

func (f podFile) text() string {
	if f.r.IntN(5) == 0 {
		return f.json()
	}
	var b strings.Builder
	b.WriteString(f.rarely(4, "", "---\n", "# a pod\n", "\n\n", "%YAML 1.2\n---\n", "\ufeff", "---\n---\n", "# only a comment\n---\n",
		"--- # the pod\n", "a: b\n---\n"))
	version := f.rarely(12, "apiVersion: v1\n", "apiVersion: 'v1'\n", "apiVersion: \"v1\"\n", "apiVersion: v2\n", "apiVersion: apps/v1\n", "",
		"apiversion: v1\n", "apiVersion: v1 # the first\n", "apiVersion: !!str v1\n", "apiVersion: v1\napiVersion: v1\n", "apiVersion: \"v\\x31\"\n")
	kind := f.rarely(12, "kind: Pod\n", "kind: 'Pod'\n", "kind: pod\n", "kind: PodList\n", "kind: List\n", "", "kind: Pod \n", "Kind: Pod\n",
		"kind: ConfigMap\nkind: Pod\n", "kind: &kind Pod\n")
	parts := []string{version, kind, f.metadata(), f.spec()}
	if f.r.IntN(3) == 0 {
		f.r.Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
	}
	parts = append(parts, f.rarely(6, "", "status: {}\n", "extra: 1\n", "status: {phase: Running}\n", "---\napiVersion: v1\nkind: Pod\n",
		"...\n", "...\nmore: 1\n", "---\n", "---\n{}\n", "spec: {}\n", "\t\n"))
	b.WriteString(strings.Join(parts, ""))
	out := b.String()
	switch f.r.IntN(20) {
	case 0:
		out = strings.ReplaceAll(out, "\n", "\r\n")
	case 1:
		out = strings.TrimSuffix(out, "\n")
	case 2:
		out += "\x00"
	}
	return out
}

func (f podFile) name() string {
	return f.rarely(6, "velum", "'velum'", "\"velum\"", "123", "1.5", "true", "null", "~", "", "Velum", "a.b.c", "a_b", "-a", "velum-é", "|\n    velum", ">-\n    velum",
		"&name velum", "!!str 123", "on", "0x1f", "1e3", "\"vel\\u0075m\"", strings.Repeat("a", 254), "velum # ours", "2001-01-01", "[velum]", "{a: b}")
}

func (f podFile) metadata() string {
	name := "name: " + f.name() + "\n"
	namespace := f.rarely(2, "", "namespace: kube-system\n", "namespace: default\n", "namespace: ''\n", "namespace: 5\n", "namespace: null\n", "namespace: Kube\n",
		"Namespace: kube-system\n", "namespace: \"kube-system\"\n")
	labels := f.rarely(3, "", "labels: {app: velum}\n", "labels:\n    app: velum\n", "labels: {app: 1}\n", "annotations: {a: 'b'}\n", "annotations: {a: true}\n",
		"labels: null\n", "name: other\n", "generateName: x\n", "uid: abc\n", "uid: 7\n", "creationTimestamp: null\n", "finalizers: [a]\n")
	if !strings.Contains(name+namespace+labels, "\n    ") && f.r.IntN(4) == 0 && !strings.Contains(name+namespace+labels, "#") {
		fields := strings.Split(strings.TrimSpace(name+namespace+labels), "\n")
		return "metadata: {" + strings.Join(fields, ", ") + "}\n"
	}
	out := "metadata:\n"
	for _, part := range []string{name, namespace, labels} {
		if part != "" {
			out += "  " + part
		}
	}
	return out + f.rarely(20, "", "metadata: {name: later}\n", "metadata: null\n")
}

func (f podFile) image() string {
	return f.rarely(3, "registry.example.com/demo/velum:4.0.0-rev1", "nginx", "'nginx:1.2'", "\"nginx\"", "", "null", "1.10", "nginx:1.10", "yes", "registry.example.com:5000/a@sha256:"+strings.Repeat("0", 64),
		"nginx # ours", "nginx#ours", "' nginx'", "nginx:", ":1", "|\n      nginx", "|-\n      nginx", ">-\n      nginx", "&i nginx", "*i", "!!str nginx", "\"ng\\x69nx\"", "[a]", "a b", "UPPER/Case:1", "__TAG__", "nginx:__TAG__", "~",
		"docker.io/library/nginx:latest")
}

func (f podFile) container(indent string) string {
	name := f.rarely(10, "velum", "c", "'c'", "1", "", "C", "null", "a_b", "yes")
	lines := []string{"name: " + name, "image: " + f.image()}
	if f.r.IntN(3) == 0 {
		lines = append(lines, "imagePullPolicy: "+f.rarely(3, "IfNotPresent", "Always", "Never", "'Always'", "always", "", "Sometimes", "null"))
	}
	lines = append(lines, f.extras()...)
	if f.r.IntN(4) == 0 {
		f.r.Shuffle(len(lines), func(i, j int) { lines[i], lines[j] = lines[j], lines[i] })
	}
	flow := !strings.Contains(strings.Join(lines, ""), "\n") && !strings.Contains(strings.Join(lines, ""), "#") && f.r.IntN(5) == 0
	if flow {
		return indent + "- {" + strings.Join(lines, ", ") + "}\n"
	}
	return indent + "- " + strings.Join(lines, "\n"+indent+"  ") + "\n"
}

func (f podFile) extras() []string {
	if f.r.IntN(3) > 0 {
		return nil
	}
	return []string{f.one("command: [sleep, '1']", "command: [sleep, 1]", "args: ['--a']", "env: [{name: A, value: 'b'}]", "env: [{name: A, value: 1}]",
		"ports: [{containerPort: 80}]", "ports: [{containerPort: '80'}]", "resources: {requests: {cpu: 1}}", "resources: {requests: {cpu: x}}", "image: second",
		"unknownField: 1", "readinessProbe: {httpGet: {port: 80}}", "readinessProbe: {httpGet: {port: http}}", "volumeMounts: [{name: v, mountPath: /v}]",
		"securityContext: {privileged: true}", "stdin: yes", "tty: true", "terminationMessagePath: /x", "command: sleep")}
}

func (f podFile) spec() string {
	var b strings.Builder
	b.WriteString(f.rarely(15, "spec:\n", "spec: &spec\n", "Spec:\n"))
	list := func(name string, most int) {
		b.WriteString("  " + name + ":" + f.rarely(20, "", " []", " null", " {}") + "\n")
		for range 1 + f.r.IntN(most) {
			b.WriteString(f.container("  "))
		}
	}
	if f.r.IntN(4) == 0 {
		list("initContainers", 2)
	}
	if f.r.IntN(20) > 0 {
		list("containers", 2)
	}
	b.WriteString(f.rarely(4, "", "  hostNetwork: true\n", "  hostNetwork: 'true'\n", "  restartPolicy: Always\n", "  restartPolicy: Often\n", "  volumes: [{name: v, emptyDir: {}}]\n",
		"  volumes: [{name: v, configMap: {name: c}}]\n", "  volumes: [{name: v, hostPath: {path: /v}}]\n", "  serviceAccountName: x\n", "  nodeName: other\n",
		"  terminationGracePeriodSeconds: 5\n", "  terminationGracePeriodSeconds: '5'\n", "  ephemeralContainers: [{name: e, image: e}]\n", "  priority: 1\n", "  unknown: {}\n",
		"  containers: [{name: last, image: last}]\n"))
	return b.String()
}

// json returns a pod manifest as JSON, complete or broken.
func (f podFile) json() string {
	container := map[string]any{"name": "c", "image": f.one("nginx", "nginx:1", "registry.example.com/a:1")}
	if f.r.IntN(2) == 0 {
		container["imagePullPolicy"] = f.one("Always", "Never")
	}
	pod := map[string]any{
		"apiVersion": "v1", "kind": f.rarely(8, "Pod", "pod", "List"), "metadata": map[string]any{"name": f.rarely(8, "velum", "", "V")},
		"spec": map[string]any{"containers": []any{container}},
	}
	data, _ := json.MarshalIndent(pod, "", f.one("", " ", "\t"))
	text := string(data)
	switch f.r.IntN(12) {
	case 0:
		text += f.one("{}", "\n---\n", "x", ",", "\n\n", "}")
	case 1:
		text = f.one("\ufeff", "\n", " ", "\t", "// pod\n", "---\n") + text
	case 2:
		text = strings.Replace(text, `"image"`, `"image": "first", "image"`, 1)
	case 3:
		text = strings.ReplaceAll(text, `"`, `'`)
	case 4:
		text = strings.Replace(text, `"name"`, f.one(`"Name"`, `"NAME"`, `name`), 1)
	case 5:
		text = strings.Replace(text, `"nginx`, `"ng\u0069nx`, 1)
	case 6:
		text = strings.Replace(text, "}", f.one(",}", ""), 1)
	}
	return text
}

// TestPodFilesAreReadAsByKubelet checks that the agent finds the pod, containers, images and policies that kubelet
// runs. For a file that kubelet does not run, the agent finds no pod or an error, except where kubelet rejects the
// value of a field: the agent does not repeat the validation of every field.
func TestPodFilesAreReadAsByKubelet(t *testing.T) {
	t.Parallel()
	k := startKubelet(t, "pod-files")
	rounds, r := inputs(t, 2000)
	f := podFile{r}
	dir := t.TempDir()
	ran := 0
	for n := range rounds {
		text := f.text()
		own := filepath.Join(dir, fmt.Sprint(n))
		require.NoError(t, os.Mkdir(own, 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(own, "pod.yaml"), []byte(text), 0o600))
		says := k.ask(map[string]any{"pods": own}, own)
		defines := manifests.Defines([]byte(text))
		if len(says.Pods) == 0 {
			continue
		}
		ran++
		pod := says.Pods[0]
		want := pod.Namespace + "/" + strings.TrimSuffix(pod.Name, "-node")
		if !assert.Equal(t, want, defines, "%q", text) {
			continue
		}
		file, err := manifests.Parse([]byte(text))
		if err != nil {
			continue // the agent reports an error, and holds the pod
		}
		assert.Equal(t, want, file.ID(), "%q", text)
		assert.Equal(t, pod.Containers, found(file, pod.Containers), "%q", text)
	}
	assert.Greater(t, ran, rounds/5)
	t.Logf("%d files, %d pods", rounds, ran)
}

// found returns the containers that the agent finds in the document that kubelet runs, init containers first. If no
// policy is written, it takes kubelet's.
func found(file *manifests.File, kubelets []kubeletContainer) []kubeletContainer {
	images := slices.DeleteFunc(slices.Clone(file.Images), func(i manifests.Image) bool {
		return i.Document > 0 || i.Kind != manifests.KindContainer && i.Kind != manifests.KindInit
	})
	slices.SortStableFunc(images, func(a, b manifests.Image) int {
		isInit := func(i manifests.Image) int {
			if i.Kind == manifests.KindInit {
				return 0
			}
			return 1
		}
		return isInit(a) - isInit(b)
	})
	var all []kubeletContainer
	for n, i := range images {
		c := kubeletContainer{i.Container, i.Reference, i.PullPolicy}
		if c.Policy == "" && n < len(kubelets) {
			c.Policy = kubelets[n].Policy
		}
		all = append(all, c)
	}
	return all
}

// TestDirectoriesAreReadAsByKubelet checks that the agent finds the files that kubelet finds in a directory, whatever
// their names and kinds are.
func TestDirectoriesAreReadAsByKubelet(t *testing.T) {
	t.Parallel()
	k := startKubelet(t, "directories")
	rounds, r := inputs(t, 1000)
	top := t.TempDir()
	names := []string{"a.yaml", "b.yml", "c.json", "d", ".e.yaml", "f.yaml~", "g.bak", "H.YAML", "i i.yaml", "j.yaml.rpmnew", "#k#", "..l", "m\u00e9.yaml", "n\n.yaml", "[o].yaml", "-p"}
	compared := 0
	for n := range rounds {
		dir, outside := filepath.Join(top, fmt.Sprint(n)), filepath.Join(top, fmt.Sprint(n, "-outside"))
		require.NoError(t, os.Mkdir(dir, 0o755))
		require.NoError(t, os.Mkdir(outside, 0o755))
		for range 1 + r.IntN(4) {
			putThing(t, r, filepath.Join(dir, names[r.IntN(len(names))]), outside)
		}
		var want, got []string
		for _, pod := range k.ask(map[string]any{"pods": dir}, dir, outside).Pods {
			want = append(want, pod.Namespace+"/"+strings.TrimSuffix(pod.Name, "-node"))
		}
		files, err := podfiles.New(podfiles.Dirs{PodManifests: dir}).PodManifests(t.Context())
		require.NoError(t, err)
		unread := false
		for _, file := range files {
			unread = unread || file.IsUnread()
			if id := manifests.Defines(file.Content()); id != "" {
				got = append(got, id)
			}
		}
		if unread {
			continue // the agent reports files that it cannot read, and holds
		}
		compared++
		slices.Sort(want)
		slices.Sort(got)
		assert.Equal(t, slices.Compact(want), slices.Compact(got), "%v", tree(t, dir))
	}
	assert.Greater(t, compared, 500)
}

// putThing creates a file, or something that is not a regular file, unless the name exists.
func putThing(t *testing.T, r *rand.Rand, path, outside string) {
	t.Helper()
	if _, err := os.Lstat(path); err == nil {
		return
	}
	pod := fmt.Appendf(nil, "apiVersion: v1\nkind: Pod\nmetadata: {name: p%d}\nspec: {containers: [{name: c, image: i}]}\n", r.IntN(6))
	other := filepath.Join(outside, fmt.Sprint(r.IntN(1000)))
	switch r.IntN(10) {
	case 0:
		require.NoError(t, os.Mkdir(path, 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(path, "x.yaml"), pod, 0o600))
	case 1:
		require.NoError(t, os.WriteFile(other, pod, 0o600))
		require.NoError(t, os.Symlink(other, path))
	case 2:
		require.NoError(t, os.Symlink(outside, path))
	case 3:
		require.NoError(t, os.Symlink("nowhere", path))
	case 4:
		require.NoError(t, os.WriteFile(path, pod, 0o600))
		require.NoError(t, os.Chmod(path, os.FileMode([]uint32{0o666, 0o600, 0o000, 0o777}[r.IntN(4)])))
	case 5:
		require.NoError(t, os.WriteFile(path, nil, 0o600))
	default:
		require.NoError(t, os.WriteFile(path, pod, 0o600))
	}
}

func tree(t *testing.T, dir string) (all []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, entry := range entries {
		all = append(all, fmt.Sprintf("%q %s", entry.Name(), entry.Type()))
	}
	return all
}
