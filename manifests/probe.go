// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/kubic-project/image-update-agent/internal/base/yamledit"
)

// The kinds of a Probe.
const (
	ProbeHTTP = "httpGet"
	ProbeTCP  = "tcpSocket"
	ProbeExec = "exec"
	ProbeGRPC = "grpc"
)

// The types of a Probe: what kubelet concludes from it.
const (
	ProbeStartup   = "startup"   // the others begin when it has succeeded once; kubelet ends a container that fails it
	ProbeLiveness  = "liveness"  // kubelet ends a container that fails it
	ProbeReadiness = "readiness" // the container is ready
)

// Kubelet's defaults (SetDefaults_Probe and SetDefaults_PodSpec in
// k8s.io/kubernetes/pkg/apis/core/v1/defaults.go).
const (
	defaultTimeout  = time.Second
	defaultPeriod   = 10 * time.Second
	defaultFailures = 3
	defaultGrace    = 30 * time.Second
)

// Probe is a probe of a container, with kubelet's defaults filled in.
type Probe struct {
	Container string
	Type      string // ProbeStartup, ProbeLiveness or ProbeReadiness
	Kind      string // its handler: one of the Probe constants, or as written
	Host      string // as written; empty for the pod's address
	Port      int    // a named port is resolved among the container's ports; 0 if it cannot be
	Scheme    string // httpGet: HTTP or HTTPS, or as written
	Path      string // httpGet
	Headers   []Header
	Service   string   // grpc
	Command   []string // exec, with the variables of the container that the pod manifest has
	Timeout   time.Duration
	// Delay is the time from the start of the container to the first run, Period that from one run to the next.
	Delay, Period time.Duration
	// Successes and Failures in a row change kubelet's mind.
	Successes, Failures int
	Grace               time.Duration // of a container that kubelet ends because of the probe
}

// Patience is how long kubelet lets a container fail the probe until it ends it; a year at most.
func (p Probe) Patience() time.Duration {
	most := float64(365 * 24 * time.Hour)
	return time.Duration(min(most, float64(p.Delay)+float64(p.Failures)*float64(p.Period)+float64(p.Timeout)))
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
		for _, kind := range []string{ProbeStartup, ProbeLiveness, ProbeReadiness} {
			if probe, ok := probeOf(c, kind); ok {
				probe.Grace = cmp.Or(probe.Grace, p.Grace)
				p.Probes = append(p.Probes, probe)
			}
		}
	}
}

// probeOf reads a container's probe of a type. Its handler is the one mapping among numbers; without a handler there is
// no probe.
func probeOf(container *yaml.Node, kind string) (Probe, bool) {
	written, ok := yamledit.Get(container, kind+"Probe")
	if !ok {
		return Probe{}, false
	}
	p := Probe{
		Container: text(container, "name"), Type: kind, Timeout: defaultTimeout, Period: defaultPeriod, Successes: 1,
		Failures: defaultFailures,
	}
	var handler *yaml.Node
	for _, field := range yamledit.Fields(written.Value) {
		name, value := yamledit.Resolve(field.Key).Value, yamledit.Resolve(field.Value)
		switch {
		case name == "timeoutSeconds":
			p.Timeout = secondsOf(value, 1, defaultTimeout)
		case name == "periodSeconds":
			p.Period = secondsOf(value, 1, defaultPeriod)
		case name == "initialDelaySeconds":
			p.Delay = secondsOf(value, 0, 0)
		case name == "successThreshold":
			p.Successes = countOf(value, 1)
		case name == "failureThreshold":
			p.Failures = countOf(value, defaultFailures)
		case name == "terminationGracePeriodSeconds":
			p.Grace = secondsOf(value, 1, 0)
		case value.Kind == yaml.MappingNode && handler == nil:
			p.Kind, handler = name, value
		}
	}
	if p.Kind == ProbeHTTP {
		p.Scheme, p.Path = "HTTP", "/"
	}
	for _, field := range yamledit.Fields(handler) {
		p.take(yamledit.Resolve(field.Key).Value, field.Value, container)
	}
	return p, handler != nil
}

// take reads one field of the handler.
func (p *Probe) take(name string, value, container *yaml.Node) {
	written := stringOf(value)
	isHTTP := p.Kind == ProbeHTTP
	switch {
	case p.Kind == ProbeExec:
		if name == "command" {
			p.Command = commandOf(value, container)
		}
	case name == "port":
		p.Port = portOf(value, container)
	case name == "service" && p.Kind == ProbeGRPC:
		p.Service = written
	case name == "host" && p.Kind != ProbeGRPC:
		p.Host = written
	case name == "httpHeaders" && isHTTP:
		for _, h := range children(value) {
			p.Headers = append(p.Headers, Header{text(h, "name"), text(h, "value")})
		}
	case written == "":
	case name == "scheme" && isHTTP:
		p.Scheme = written
	case name == "path" && isHTTP:
		p.Path = written
	}
}

// commandOf returns a command with the variables of its container that have a value in the pod manifest, as kubelet
// does for probes (ExpandContainerCommandOnlyStatic in k8s.io/kubernetes/pkg/kubelet/container/helpers.go).
func commandOf(written, container *yaml.Node) []string {
	env := map[string]string{}
	variables, _ := yamledit.Get(container, "env")
	for _, v := range children(variables.Value) {
		env[text(v, "name")] = text(v, "value")
	}
	var out []string
	for _, word := range children(written) {
		out = append(out, expand(stringOf(word), env))
	}
	return out
}

// expand replaces $(NAME); $$ is a dollar. An unknown name stays as it is.
func expand(word string, env map[string]string) string {
	var b strings.Builder
	for {
		before, after, found := strings.Cut(word, "$")
		b.WriteString(before)
		name, rest, closed := strings.Cut(strings.TrimPrefix(after, "("), ")")
		value, known := env[name]
		switch {
		case !found:
			return b.String()
		case strings.HasPrefix(after, "$"):
			b.WriteByte('$')
			word = after[1:]
		case strings.HasPrefix(after, "(") && closed && known:
			b.WriteString(value)
			word = rest
		case strings.HasPrefix(after, "(") && closed:
			b.WriteString("$(" + name + ")")
			word = rest
		default:
			b.WriteByte('$')
			word = after
		}
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

// countOf returns a number if it is at least 1, else otherwise.
func countOf(n *yaml.Node, otherwise int) int {
	if count, ok := intOf(n); ok && count >= 1 {
		return int(min(count, math.MaxInt32))
	}
	return otherwise
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
