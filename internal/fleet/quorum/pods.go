// SPDX-License-Identifier: Apache-2.0

package quorum

import (
	"errors"
	"path"
	"slices"
	"strings"

	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/manifests"
)

// podSpec is the part of a pod manifest that is read.
type podSpec struct {
	Spec struct {
		Containers []container `yaml:"containers"`
		Inits      []container `yaml:"initContainers"`
		Volumes    []volume    `yaml:"volumes"`
	} `yaml:"spec"`
}

type volume struct {
	Name string `yaml:"name"`
	Host struct {
		Path string `yaml:"path"`
	} `yaml:"hostPath"`
}

type container struct {
	Name    string     `yaml:"name"`
	Restart string     `yaml:"restartPolicy"` // of an init container: Always makes it run next to the others
	Command []string   `yaml:"command"`
	Args    []string   `yaml:"args"`
	Env     []variable `yaml:"env"`
	EnvFrom []any      `yaml:"envFrom"`
	Mounts  []mount    `yaml:"volumeMounts"`

	volumes []volume // of its pod
}

type variable struct {
	Name      string `yaml:"name"`
	Value     string `yaml:"value"`
	ValueFrom any    `yaml:"valueFrom"`
}

type mount struct {
	Name        string `yaml:"name"`
	Path        string `yaml:"mountPath"`
	SubPath     string `yaml:"subPath"`
	SubPathExpr string `yaml:"subPathExpr"`
}

// misread is a pod manifest that could not be understood.
type misread struct {
	file string
	err  error
}

func (m *misread) Error() string { return "pod manifest " + m.file + ": " + m.err.Error() }
func (m *misread) Unwrap() error { return m.err }

// programs are the etcds and API servers in the pod manifests of a node.
type programs struct {
	by   map[string][]program // role
	errs []error              // errors of pod manifests that could not be understood
}

// program is a container that runs etcd or an API server.
type program struct {
	file string
	container
}

// find reads every pod manifest that kubelet reads. One that cannot be read or parsed may contain any program.
func find(files []node.PodFile) programs {
	all := programs{by: map[string][]program{}}
	for _, file := range files {
		if file.PassedOver {
			continue
		}
		pod, err := file.Parse()
		if _, is := errors.AsType[*manifests.NotPodError](err); is && !file.IsUnread() {
			continue
		}
		if err != nil { // without apiVersion it is not a pod, but a running pod may have been made from it
			pod, err = manifests.Parse(slices.Concat([]byte("apiVersion: v1\n"), file.Content()))
		}
		var spec podSpec
		if err != nil || pod.Decode(&spec) != nil {
			all.errs = append(all.errs, &misread{file.Name, words("cannot be read as a Pod")})
			continue
		}
		all.add(file.Name, pod, spec)
	}
	if len(all.by[manifests.RoleEtcd]) > maxParts || len(all.by[manifests.RoleAPIServer]) > maxParts {
		all.errs = append(all.errs, words("too many etcds or API servers on this node"))
		clear(all.by)
	}
	return all
}

// add adds the containers of a pod that run etcd or an API server.
func (p *programs) add(file string, pod *manifests.File, spec podSpec) {
	for _, role := range []string{manifests.RoleEtcd, manifests.RoleAPIServer} {
		found, hasClients := spec.running(pod, role)
		if len(found) == 0 && pod.Role == role && !hasClients {
			p.errs = append(p.errs, &misread{file, words("no container is known as " + role)})
		}
		for _, c := range found {
			p.by[role] = append(p.by[role], program{file, c})
		}
	}
}

// running returns the containers that run a program, or may. Clients of etcd run next to it or alone.
func (s podSpec) running(pod *manifests.File, role string) (found []container, hasClients bool) {
	all := slices.Clone(s.Spec.Containers)
	for _, c := range s.Spec.Inits {
		if c.Restart == "Always" {
			all = append(all, c)
		}
	}
	isClient := func(c container) bool {
		return len(c.Command) > 0 && slices.Contains([]string{"etcdctl", "etcdutl"}, path.Base(c.Command[0]))
	}
	hasClients = slices.ContainsFunc(all, isClient)
	all = slices.DeleteFunc(all, isClient)
	for n := range all {
		all[n].volumes = s.Spec.Volumes
		if pod.Runs(all[n].Name, role) {
			found = append(found, all[n])
		}
	}
	switch {
	case len(found) > 0 || pod.Role != role:
	case len(all) == 1:
		found = all
	default: // the pod has the name or the label: the container with that name runs it
		found = slices.DeleteFunc(all, func(c container) bool { return c.Name != role })
	}
	return found, hasClients
}

// environment has a container's variables; a value that is not in the file is unknown.
type environment map[string]string

// unknown stands for text that is not in the file. No file contains it: it is not a valid character in YAML or JSON.
const unknown = "\x00"

// environment reads the variables; a later one replaces an earlier one, and may refer to it.
func (c container) environment() environment {
	env := environment{}
	for _, v := range c.Env {
		env[v.Name] = env.expand(v.Value)
		if v.ValueFrom != nil {
			env[v.Name] = unknown
		}
	}
	return env
}

// expand replaces $(NAME) as kubelet does; $$ is a dollar. A variable that is not set is unknown, because kubelet also
// sets variables for services.
func (e environment) expand(text string) string {
	var b strings.Builder
	for {
		before, after, found := strings.Cut(text, "$")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		name, rest, isReference := strings.Cut(strings.TrimPrefix(after, "("), ")")
		switch {
		case strings.HasPrefix(after, "$"):
			b.WriteByte('$')
			text = after[1:]
		case strings.HasPrefix(after, "(") && isReference:
			value, known := e[name]
			if !known {
				value = unknown
			}
			b.WriteString(value)
			text = rest
		default:
			b.WriteByte('$')
			text = after
		}
	}
}

// onHost maps a path of the container to the host. Without a mount it returns the same path.
func (c container) onHost(name string) (string, error) {
	if name == "" {
		return "", nil
	}
	if strings.Contains(name, unknown) || !path.IsAbs(name) {
		return "", words("cannot tell the path of a file")
	}
	name = path.Clean(name)
	var best *mount
	for n, m := range c.Mounts {
		at := path.Clean(m.Path)
		if (name == at || strings.HasPrefix(name, strings.TrimSuffix(at, "/")+"/")) &&
			(best == nil || len(at) > len(path.Clean(best.Path))) {
			best = &c.Mounts[n]
		}
	}
	if best == nil {
		return name, nil
	}
	for _, v := range c.volumes {
		if v.Name == best.Name && v.Host.Path != "" && best.SubPathExpr == "" {
			return path.Join(v.Host.Path, best.SubPath, strings.TrimPrefix(name, path.Clean(best.Path))), nil
		}
	}
	return "", words("file " + name + " is in no directory of the host")
}
