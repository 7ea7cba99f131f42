// SPDX-License-Identifier: Apache-2.0

// Package readiness tells whether the containers of a pod have started, are ready and alive: from kubelet, from what
// kubelet has told the API server, or else by the probes in the pod manifest.
//
// Words:
//
//   - Probe: a startup, readiness or liveness probe, as in package manifests: an HTTP request with a status from 200 to
//     399, a TCP connection, gRPC's health protocol, or a program that CRI runs in the container (ExecSync, which is
//     what kubelet calls).
//   - List: the pods that kubelet runs, with their status, from /pods on its read-only
//     port (10255), or on its own port for authorised clients.
//   - Mirror pod: kubelet's copy of a static pod in the API server, which its own kubeconfig may read. It is an answer
//     only about the containers whose ids it has: it may be older than the pod, and a kubelet that runs alone has none.
//   - Unchecked: a container whose probe could not be run, with the reason. It counts
//     neither as ready nor as unready.
//
// kubelet does not tell whether a liveness probe fails, it ends the container. So this probe also runs beside kubelet,
// unless the container has outlived the time after which kubelet ends it.
//
// Promises: only GET requests and empty connections are sent, never through a proxy, and connections are not kept. The
// size and time of answers are limited. Messages have scheme, host, port and path of a request, but no query, header or
// body, which may be secret.
//
// Probes behave as in k8s.io/kubernetes/pkg/probe, except for the User-Agent.
package readiness
