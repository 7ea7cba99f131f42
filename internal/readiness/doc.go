// SPDX-License-Identifier: Apache-2.0

// Package readiness checks whether the containers of a pod are ready: by kubelet's list of
// pods, or else with the probes in the pod manifest.
//
// Words:
//
//   - Probe: the readiness probe of a container, as in package manifests. An
//     HTTP probe succeeds with a status from 200 to 399, a TCP probe with a
//     connection; others only kubelet can run, as they happen inside the container
//     or need its libraries.
//   - List: the pods that kubelet runs, with their status, from /pods on its read-only
//     port (10255), or on its own port for authorised clients.
//   - Unchecked: a container whose probe could not be run, with the reason. It counts
//     neither as ready nor as unready.
//
// Promises: only GET requests and empty connections are sent, never through a proxy, and
// connections are not kept. Answers are bounded in size and time. Messages have scheme,
// host, port and path of a request, and no query, header or body, which may be secret.
//
// Probes are those of k8s.io/kubernetes/pkg/probe, but for the User-Agent.
package readiness
