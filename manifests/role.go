// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"path"
	"regexp"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/kubic-project/image-update-agent/internal/yamledit"
)

// The roles of pods without which a cluster has no API, and of those that must not be newer than its API server.
const (
	RoleEtcd              = "etcd"
	RoleAPIServer         = "kube-apiserver"
	RoleControllerManager = "kube-controller-manager"
	RoleScheduler         = "kube-scheduler"
)

// roles are in the order in which a pod with several of them counts.
var roles = []string{RoleEtcd, RoleAPIServer, RoleControllerManager, RoleScheduler}

// roleLabels are the labels by which installers name what a pod is: kubeadm, RKE2, kubespray, Helm charts.
var roleLabels = []string{"component", "k8s-app", "app", "app.kubernetes.io/name", "app.kubernetes.io/component"}

// roleOf tells which part of a control plane a pod is, by its name, its labels, or the program that a container runs;
// "" for none. A pod that only looks like one needs more care than it deserves, which does no harm.
func roleOf(name string, metadata, spec *yaml.Node) string {
	labels, _ := yamledit.Get(metadata, "labels")
	var words, names []string
	for _, c := range programs(spec) {
		words = append(words, programWords(c)...)
		if isUnknownProgram(c) {
			names = append(names, tellingName(repositoryName(text(c, "image")), text(c, "name"), name))
		}
	}
	for _, role := range roles {
		named := name == role || slices.ContainsFunc(roleLabels, func(l string) bool { return text(labels.Value, l) == role })
		if named || slices.ContainsFunc(words, func(w string) bool { return runs(words, w, role) }) ||
			slices.ContainsFunc(names, func(n string) bool { return hasName(n, role) }) {
			return role
		}
	}
	return ""
}

// Runs reports whether a container, by its name, runs the program of a role, as Role tells it of the whole pod.
func (f *File) Runs(container, role string) bool {
	spec, _ := yamledit.Get(f.yaml.Documents[0].Content[0], "spec")
	return slices.ContainsFunc(programs(spec.Value), func(c *yaml.Node) bool {
		if text(c, "name") != container {
			return false
		}
		words := programWords(c)
		return slices.ContainsFunc(words, func(w string) bool { return runs(words, w, role) }) ||
			isUnknownProgram(c) && hasName(tellingName(repositoryName(text(c, "image")), container), role)
	})
}

// Decode decodes the pod into what v points to, by the names of YAML.
func (f *File) Decode(v any) error { return f.yaml.Documents[0].Decode(v) }

// programs are the containers and init containers of a pod.
func programs(spec *yaml.Node) []*yaml.Node {
	var all []*yaml.Node
	for _, list := range []string{"containers", "initContainers"} {
		found, _ := yamledit.Get(spec, list)
		all = append(all, children(found.Value)...)
	}
	return all
}

// ownFlags are flags and variables that only one program has, whatever its file is called; etcd's variables are its
// flags in capitals.
var ownFlags = map[string]string{
	"listen-client-urls": RoleEtcd, "listen-peer-urls": RoleEtcd, "listen-metrics-urls": RoleEtcd,
	"initial-cluster": RoleEtcd, "initial-cluster-state": RoleEtcd, "initial-cluster-token": RoleEtcd,
	"advertise-client-urls": RoleEtcd, "initial-advertise-peer-urls": RoleEtcd,
	"kubelet-client-certificate": RoleAPIServer, "service-account-signing-key-file": RoleAPIServer,
	"service-account-issuer": RoleAPIServer,
}

// etcdVariable turns a variable of etcd into its flag.
func etcdVariable(name string) string {
	if flag, is := strings.CutPrefix(name, "ETCD_"); is {
		return strings.ReplaceAll(strings.ToLower(flag), "_", "-")
	}
	return name
}

// hides are programs that only start another one, which their words need not name.
var hides = regexp.MustCompile(`^(|.*\.(sh|bash|py|pl)|sh|bash|dash|ash|busybox|env|tini|dumb-init|python3?|` +
	`(docker-)?entrypoint|start|run|init)$`)

// isUnknownProgram reports whether a container does not tell what it runs: the image's entrypoint, or a script.
func isUnknownProgram(container *yaml.Node) bool {
	command, _ := yamledit.Get(container, "command")
	words := commandWords(container)
	return len(children(command.Value)) == 0 || len(words) == 0 || strings.Contains(words[0], "$") ||
		hides.MatchString(path.Base(words[0]))
}

// tellingName is the first of the names that has a role; "" for none.
func tellingName(names ...string) string {
	for _, name := range names {
		if slices.ContainsFunc(roles, func(role string) bool { return hasName(name, role) }) {
			return name
		}
	}
	return ""
}

// hasName reports whether a name has a role as one of its parts: etcd0, etcd-master1, hardened-etcd, start-etcd.sh.
func hasName(name, role string) bool {
	name = strings.NewReplacer("_", "-", ".", "-").Replace(name)
	for rest, found := name, true; found; {
		var before string
		if before, rest, found = strings.Cut(rest, role); !found {
			return false
		}
		after := strings.TrimLeft(rest, "0123456789")
		if (before == "" || strings.HasSuffix(before, "-")) && (after == "" || strings.HasPrefix(after, "-")) {
			return true
		}
	}
	return false
}

// programFile is a role with what installers add to the name of its file.
var programFile = regexp.MustCompile(`^(etcd|kube-[a-z-]+?)` +
	`(-v?\d+(\.\d+)+([-+]\w+)*|-amd64|-arm64|-ppc64le|-s390x|-manager)$`)

// IsProgram reports whether a file's name is that of the program of a role: etcd, etcd-v3.5.21.
func IsProgram(file, role string) bool {
	m := programFile.FindStringSubmatch(file)
	return file == role || m != nil && m[1] == role
}

// runs reports whether one word of a pod's programs tells that it has a role.
func runs(words []string, word, role string) bool {
	file := path.Base(word)
	if IsProgram(file, role) {
		return true
	}
	if strings.HasSuffix(file, ".sh") && !strings.HasPrefix(word, "-") && hasName(file, role) {
		return true
	}
	if word == strings.TrimPrefix(role, "kube-") && role != RoleEtcd { // hyperkube apiserver
		return slices.ContainsFunc(words, func(w string) bool { return path.Base(w) == "hyperkube" })
	}
	flag, _, _ := strings.Cut(strings.TrimLeft(word, "-"), "=")
	return ownFlags[etcdVariable(flag)] == role
}

// programWords are the words of a container that may name its program: those of command and args, also within the text
// of a shell, and the values of variables where a word is one.
func programWords(container *yaml.Node) []string {
	words := commandWords(container)
	env, _ := yamledit.Get(container, "env")
	hasVariable := slices.ContainsFunc(words, func(w string) bool { return strings.Contains(w, "$") })
	for _, variable := range children(env.Value) {
		words = append(words, text(variable, "name"))
		if hasVariable {
			words = append(words, strings.FieldsFunc(text(variable, "value"), isBetweenWords)...)
		}
	}
	return words
}

func commandWords(container *yaml.Node) (words []string) {
	for _, name := range []string{"command", "args"} {
		list, _ := yamledit.Get(container, name)
		for _, item := range children(list.Value) {
			words = append(words, strings.FieldsFunc(valueOf(item), isBetweenWords)...)
		}
	}
	return words
}

func valueOf(n *yaml.Node) string {
	if n = yamledit.Resolve(n); n != nil {
		return n.Value
	}
	return ""
}

// isBetweenWords is generous: a word too many is one more that may name a program.
func isBetweenWords(r rune) bool { return strings.ContainsRune(" \t\r\n;&|()<>\"'`{}", r) }

// repositoryName is the last part of an image's repository.
func repositoryName(image string) string {
	image, _, _ = strings.Cut(image, "@")
	name, _, _ := strings.Cut(path.Base(image), ":")
	return name
}
