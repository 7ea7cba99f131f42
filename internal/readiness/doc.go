// SPDX-License-Identifier: Apache-2.0

// Package readiness asks whether the containers of a pod are ready to serve:
// kubelet where it lists its pods, else the containers themselves, by the probes
// that their pod manifest has.
//
// Words:
//
//   - Probe: the readiness probe of a container, as in package manifests. An
//     HTTP probe succeeds with a status from 200 to 399, a TCP probe with a
//     connection; others only kubelet can run, as they happen inside the container
//     or need its libraries.
//   - List: the pods that kubelet runs, with their status, as it serves them
//     under /pods: on the read-only port (10255 where it is open), or on its own
//     port for those it lets in.
//   - Unchecked: a container whose probe nobody ran. It is named with the reason,
//     and is never taken for ready or for unready.
//
// Promises: nothing is sent but GET requests and empty connections, never through
// a proxy, and no connection outlives its question. Answers are bounded in size
// and time. A message has the scheme, host, port and path that were asked, and no
// query, header or body: those may hold what is nobody's business.
//
// Probes are those of k8s.io/kubernetes/pkg/probe, but for the User-Agent.
package readiness
