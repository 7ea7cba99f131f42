// SPDX-License-Identifier: Apache-2.0

// Package registry is the source of releases over the network: it implements source.Source on containerd's registry
// hosts, so that the agent polls the same hosts in the same order as kubelet pulls from. Package hosts reads which ones
// these are, package transport sends the requests.
//
// # Words
//
// A namespace is the host in a repository's name: registry.suse.com in registry.suse.com/caasp/v4/velum, docker.io in
// docker.io/sles12/velum. A host is a server that may answer for it: the namespace itself (upstream) or a mirror from
// certs.d. A host with the capability resolve may resolve tags, one with pull may serve digests. An endpoint is one
// repository on one host.
//
// # Promises
//
//   - A poll of a tag is one HEAD request on a kept-alive connection. A GET
//     follows only if the host sends no digest or refuses HEAD.
//   - Hosts are asked in the order of hosts.toml. After anything but an answer (network
//     error, any status but 200, a wrong digest, a body over its limit) the next host
//     is asked, also after a 404, as in containerd. Only if every host
//     answered 404 the error is release.ErrNotFound. A request is never repeated on
//     the same host, except after a 401 that credentials may answer, and in a pull,
//     where an interrupted layer is resumed. A request that was not sent is
//     reported as such (release.SourceError.Unasked).
//   - Tag lists come from hosts with resolve, because a list has tags.
//   - Size, count and time of all input are limited (limits.go here and in
//     transport), digests are computed over the received bytes, and an ambiguous
//     manifest (CVE-2021-41190) is rejected.
package registry
