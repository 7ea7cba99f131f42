// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"math"
	"slices"
	"strconv"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/kubic-project/image-update-agent/internal/yamledit"
)

// The kinds of a Probe.
const (
	ProbeHTTP = "httpGet"
	ProbeTCP  = "tcpSocket"
	ProbeExec = "exec"
	ProbeGRPC = "grpc"
)

// Kubelet's defaults (SetDefaults_Probe and SetDefaults_PodSpec in
// k8s.io/kubernetes/pkg/apis/core/v1/defaults.go).
const (
	defaultTimeout = time.Second
	defaultGrace   = 30 * time.Second
)

// Probe is the readiness probe of a container, with kubelet's defaults filled
// in. Only httpGet and tcpSocket have more than a Kind.
type Probe struct {
	Container string
	Kind      string // one of the Probe constants, or as written
	Host      string // as written; empty for the pod's address
	Port      int    // a named port is resolved among the container's ports; 0 if it cannot be
	Scheme    string // httpGet: HTTP or HTTPS, or as written
	Path      string // httpGet
	Headers   []Header
	Timeout   time.Duration
}

// Header is an HTTP header of a probe.
type Header struct{ Name, Value string }

// serving reads the fields of the spec about readiness and termination. It ignores values that kubelet would reject:
// kubelet reports them.
func (p *Pod) serving(spec *yaml.Node) {
	p.Grace = defaultGrace
	var regular, sidecars []*yaml.Node
	for _, field := range yamledit.Fields(spec) {
		switch yamledit.Resolve(field.Key).Value {
		case "containers":
			regular = children(field.Value)
		case "initContainers":
			sidecars = slices.DeleteFunc(slices.Clone(children(field.Value)), func(c *yaml.Node) bool {
				return text(c, "restartPolicy") != "Always"
			})
		case "restartPolicy":
			policy := stringOf(field.Value)
			p.Never = policy == "Never"
			p.Once = p.Never || policy == "OnFailure"
		case "hostNetwork":
			p.HostNetwork = isTrue(field.Value)
		case "terminationGracePeriodSeconds":
			p.Grace = secondsOf(field.Value, 0, defaultGrace)
		}
	}
	for _, c := range slices.Concat(regular, sidecars) {
		if probe, ok := readinessOf(c); ok {
			p.Probes = append(p.Probes, probe)
		}
	}
}

// readinessOf reads a container's readiness probe. Its handler is the one mapping among numbers; without a handler
// there is no probe.
func readinessOf(container *yaml.Node) (Probe, bool) {
	written, ok := yamledit.Get(container, "readinessProbe")
	if !ok {
		return Probe{}, false
	}
	p := Probe{Container: text(container, "name"), Timeout: defaultTimeout}
	var handler *yaml.Node
	for _, field := range yamledit.Fields(written.Value) {
		name, value := yamledit.Resolve(field.Key).Value, yamledit.Resolve(field.Value)
		switch {
		case name == "timeoutSeconds":
			p.Timeout = secondsOf(value, 1, defaultTimeout)
		case value.Kind == yaml.MappingNode && handler == nil:
			p.Kind, handler = name, value
		}
	}
	switch p.Kind {
	case ProbeHTTP:
		p.Scheme, p.Path = "HTTP", "/"
	case ProbeTCP:
	default:
		return Probe{Container: p.Container, Kind: p.Kind}, handler != nil
	}
	for _, field := range yamledit.Fields(handler) {
		p.take(yamledit.Resolve(field.Key).Value, field.Value, container)
	}
	return p, true
}

// take reads one field of the handler.
func (p *Probe) take(name string, value, container *yaml.Node) {
	written := stringOf(value)
	switch {
	case name == "port":
		p.Port = portOf(value, container)
	case name == "host":
		p.Host = written
	case p.Kind != ProbeHTTP:
	case name == "httpHeaders":
		for _, h := range children(value) {
			p.Headers = append(p.Headers, Header{text(h, "name"), text(h, "value")})
		}
	case written == "":
	case name == "scheme":
		p.Scheme = written
	case name == "path":
		p.Path = written
	}
}

// portOf returns a port as kubelet resolves it: a number, the name of one of the container's ports, or a number in
// quotes.
func portOf(written, container *yaml.Node) int {
	port, isNumber := intOf(written)
	if name := stringOf(written); !isNumber && name != "" {
		port, _ = strconv.ParseInt(name, 10, 32)
		ports, _ := yamledit.Get(container, "ports")
		for _, item := range children(ports.Value) {
			if number, ok := yamledit.Get(item, "containerPort"); ok && text(item, "name") == name {
				port, _ = intOf(number.Value)
				break
			}
		}
	}
	if port < 1 || port > math.MaxUint16 {
		return 0
	}
	return int(port)
}

// secondsOf returns a number of seconds if it is at least least, else otherwise.
func secondsOf(n *yaml.Node, least int64, otherwise time.Duration) time.Duration {
	seconds, ok := intOf(n)
	if !ok || seconds < least {
		return otherwise
	}
	return time.Duration(min(seconds, math.MaxInt32)) * time.Second // a larger number would overflow the duration
}

func intOf(n *yaml.Node) (i int64, ok bool) {
	n = yamledit.Resolve(n)
	if n == nil || n.Kind != yaml.ScalarNode || n.ShortTag() != "!!int" {
		return 0, false
	}
	return i, n.Decode(&i) == nil
}

func isTrue(n *yaml.Node) bool {
	n = yamledit.Resolve(n)
	return n.Kind == yaml.ScalarNode && n.Style == 0 &&
		(isYes(n.Value) || slices.Contains([]string{"true", "True", "TRUE"}, n.Value))
}
