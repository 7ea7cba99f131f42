// SPDX-License-Identifier: Apache-2.0

// Package registry is the source of releases over the network: it implements
// agent.Source on containerd's registry hosts, so that the agent polls the same
// hosts in the same order as kubelet pulls from.
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
//     said 404 the error is agent.ErrNotFound. A request is never repeated on
//     the same host, but for one 401 that credentials may answer; nor in a pull,
//     where a layer that was torn off goes on where it was.
//   - A host that asks to be left alone (429, 5xx with Retry-After) is sent nothing
//     before that second, by whatever way: polls, pulls, tokens, the hops of
//     redirects. Pace and Resume carry that over a restart. One that has brought no
//     answer to three requests in a row is left alone for a minute; one that a
//     redirect or realm led to, by who led there alone. What was not sent is told as
//     such (agent.SourceError.Unasked), and other hosts are asked.
//   - A redirect or realm leads to no address that is nearer to the node than the
//     asked host's own, unless hosts.toml names the host.
//   - Questions keep to a budget of requests an hour, which all requests count
//     against. So many connections to a host are open at once, and no more.
//   - Tag lists come from hosts with resolve, as tags are names, too.
//   - All that is read is bounded in size, count and time (limits.go), digests
//     are computed over the bytes that came, and an ambiguous manifest
//     (CVE-2021-41190) is refused.
//   - Credentials go to the host they belong to, and to the token server that is
//     named for it: never to a realm elsewhere, over a redirect to another host or
//     over plain http. No error carries the query of a URL, for redirects are
//     signed there.
//   - The files of certs.d are read again when they change; containerd itself
//     reads them at each pull. So are logins and the system's authorities.
package registry
