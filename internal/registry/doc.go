// SPDX-License-Identifier: Apache-2.0

// Package registry is the source of releases over the network: it implements
// source.Source on containerd's registry hosts, so that the agent polls the same
// hosts in the same order as kubelet pulls from. Package hosts reads which ones
// these are, package transport sends the requests.
//
// # Words
//
// A namespace is the host that a repository names: registry.suse.com in
// registry.suse.com/caasp/v4/velum, docker.io in docker.io/sles12/velum. A host
// is a server that may answer for it: the namespace itself (upstream) or a
// mirror, as the files of certs.d say. The capability resolve lets a host say
// what a tag names; pull lets it serve what a digest names. An endpoint is one
// repository on one host.
//
// # Promises
//
//   - A poll of a tag is one HEAD request on a kept-alive connection. A GET
//     follows only where the host sends no digest or refuses HEAD.
//   - Hosts are asked in the order of hosts.toml. Whatever is no answer (network
//     error, any status but 200, a wrong digest, a body over its limit) hands
//     over to the next host, 404 too, as in containerd. Only where every host
//     said 404 the error is release.ErrNotFound. A request is never repeated on
//     the same host, but for one 401 that credentials may answer; nor in a pull,
//     where a layer that was torn off goes on where it was. What was not sent is
//     reported as such (release.SourceError.Unasked).
//   - Tag lists come from hosts with resolve, as tags are names, too.
//   - All that is read is bounded in size, count and time (limits.go here and in
//     transport), digests are computed over the bytes that came, and an ambiguous
//     manifest (CVE-2021-41190) is refused.
package registry
