// SPDX-License-Identifier: Apache-2.0

package manifests

import "time"

// The kinds of a Probe.
const (
	ProbeHTTP = "httpGet"
	ProbeTCP  = "tcpSocket"
	ProbeExec = "exec"
	ProbeGRPC = "grpc"
)

// Probe is the readiness probe of a container, with kubelet's defaults filled
// in. Only httpGet and tcpSocket have more than a Kind.
type Probe struct {
	Container string
	Kind      string
	Host      string // as written; empty: the pod's address
	Port      int    // a name has been looked up among the container's ports
	Scheme    string // httpGet: HTTP or HTTPS
	Path      string // httpGet
	Headers   []Header
	Timeout   time.Duration
}

// Header is a header that a probe sends.
type Header struct{ Name, Value string }
