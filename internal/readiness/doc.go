// SPDX-License-Identifier: Apache-2.0

// Package readiness checks whether the containers of a pod are ready: with kubelet's list of pods, or else with the
// probes in the pod manifest.
//
// Words:
//
//   - Probe: the readiness probe of a container, as in package manifests. An
//     HTTP probe succeeds with a status from 200 to 399, a TCP probe with a
//     connection; only kubelet can run other probes, because they run inside the container
//     or need its libraries.
//   - List: the pods that kubelet runs, with their status, from /pods on its read-only
//     port (10255), or on its own port for authorised clients.
//   - Unchecked: a container whose probe could not be run, with the reason. It counts
//     neither as ready nor as unready.
//
// Promises: only GET requests and empty connections are sent, never through a proxy, and connections are not kept. The
// size and time of answers are limited. Messages have scheme, host, port and path of a request, but no query, header or
// body, which may be secret.
//
// Probes behave as in k8s.io/kubernetes/pkg/probe, except for the User-Agent.
package readiness
