// SPDX-License-Identifier: Apache-2.0

package quorum

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/kubic-project/image-update-agent/agent/fleet"
	"github.com/kubic-project/image-update-agent/internal/base/lazyregexp"
)

const (
	errNoEtcd   = words("no pod manifest names its members")
	errMembers  = words("no list of members")
	errClusters = words("its URLs belong to several clusters")
	errRemoved  = words("the member of this node is not in the list of members")
	errOther    = words("another member answers")
	errLeader   = words("it has no leader")
)

var errMany = words(fmt.Sprintf("more than %d members", maxParts))

// member is a member in etcd's list.
type member struct {
	id      uint64
	name    string
	peers   []string // URLs, as in the list
	clients []string
	learner bool // it has no vote
}

// cluster is an etcd with its member list.
type cluster struct {
	identity
	id      uint64
	members []member
	own     map[uint64][]string // members of this node, with their URLs
	err     error               // why it is not known
}

// answer is the answer of one URL.
type answer struct {
	cluster uint64
	by      uint64 // the member that answers
	members []member
	err     error
}

// clusterOf asks all URLs of an etcd for its members, and uses the first list.
func (e etcd) clusterOf(ctx context.Context) (cluster, error) {
	places := slices.Concat(e.urls, e.advertised)
	answers := all(places, func(at string) answer { return e.list(ctx, at) })
	c := cluster{identity: e.identity, own: map[uint64][]string{}}
	var failed []string
	for n, a := range answers {
		switch {
		case errors.Is(a.err, errMany):
			return c, errMany
		case a.err != nil:
			failed = append(failed, hostOf(places[n])+": "+kindOf(a.err))
			continue
		case c.members == nil:
			c.id, c.members = a.cluster, a.members
		case c.id != a.cluster:
			return c, errClusters
		}
		if e.isOwn && n < len(e.urls) {
			c.own[a.by] = append(c.own[a.by], places[n])
		}
	}
	switch {
	case c.members == nil:
		slices.Sort(failed)
		return c, words(strings.Join(slices.Compact(failed), "; "))
	case !c.hasOwn():
		return c, errRemoved
	}
	e.claim(c)
	return c, nil
}

// hasOwn reports whether the list has the members that answer on this node.
func (c cluster) hasOwn() bool {
	for id := range c.own {
		if !slices.ContainsFunc(c.members, func(m member) bool { return m.id == id }) {
			return false
		}
	}
	return true
}

// list returns the member list from one URL.
func (i identity) list(ctx context.Context, at string) (a answer) {
	a.err = i.ask(ctx, at, func(ctx context.Context, client *clientv3.Client) error {
		resp, err := client.MemberList(ctx)
		if err != nil {
			return err
		}
		a.cluster, a.by = resp.Header.GetClusterId(), resp.Header.GetMemberId()
		voters := 0
		for _, m := range resp.Members {
			a.members = append(a.members, member{m.ID, m.Name, m.PeerURLs, m.ClientURLs, m.IsLearner})
			if !m.IsLearner {
				voters++
			}
		}
		switch {
		case voters == 0:
			return errMembers
		case len(a.members) > maxParts:
			return errMany
		}
		return nil
	})
	return a
}

// join merges equal clusters, such as the etcd of this node and that of its API server. An etcd of this node that does
// not answer is a member of one that answers, if that lists it.
func join(etcds []etcd, found []cluster) (clusters []cluster, failed []error) {
	for _, c := range found {
		switch at := slices.IndexFunc(clusters, func(other cluster) bool { return other.id == c.id }); {
		case c.err != nil:
		case at >= 0:
			maps.Copy(clusters[at].own, c.own)
		default:
			clusters = append(clusters, c)
		}
	}
	for n, e := range etcds {
		c := found[n]
		if c.err != nil && (c.members != nil || !slices.ContainsFunc(clusters, e.claim)) {
			failed = append(failed, &misread{e.file, c.err})
		}
	}
	return clusters, failed
}

// claim finds the member of a cluster with the URLs of this node's etcd, which does not answer, and reports whether
// there is exactly one.
func (e etcd) claim(c cluster) bool {
	if !e.isOwn || len(c.own) > 0 {
		return false
	}
	has := func(own []string) func(string) bool {
		return func(at string) bool {
			place, ok := placeOf(at)
			return ok && !isLoopback(place) && slices.Contains(own, place)
		}
	}
	var ids []uint64
	for _, m := range c.members {
		if slices.ContainsFunc(m.peers, has(e.peers)) || slices.ContainsFunc(m.clients, has(e.advertised)) {
			ids = append(ids, m.id)
		}
	}
	if len(ids) != 1 {
		return false
	}
	c.own[ids[0]] = e.urls
	return true
}

// health checks each voting member.
func (c cluster) health(ctx context.Context) []fleet.Part {
	voters := slices.DeleteFunc(slices.Clone(c.members), func(m member) bool { return m.learner })
	return all(voters, func(m member) fleet.Part {
		listen, isLocal := c.own[m.id]
		p := fleet.Part{Name: "etcd member " + m.title(), Local: isLocal, Seen: "not started"}
		places := slices.Clone(listen)
		for _, at := range m.clients {
			if place, ok := placeOf(at); ok {
				places = append(places, place)
			} else {
				p.Seen = "cannot read its client URLs"
			}
		}
		places = places[:min(len(places), maxURLs)]
		for n, err := range all(places, func(at string) error { return c.isHealthy(ctx, at, m.id) }) {
			if err == nil {
				p.Healthy, p.Seen = true, ""
				break
			}
			p.Seen = hostOf(places[n]) + ": " + kindOf(err)
		}
		return p
	})
}

var memberName = lazyregexp.New(`^[A-Za-z0-9._-]{1,80}$`)

// title returns the name of a member, or its id if the name is not a plain word.
func (m member) title() string {
	if memberName().MatchString(m.name) {
		return m.name
	}
	return fmt.Sprintf("%x", m.id)
}

// isHealthy checks one URL of a member: it must read with quorum, answer itself, have a leader and no alarm. During a
// leader election reads fail, so it retries until the time is over.
func (i identity) isHealthy(ctx context.Context, at string, id uint64) error {
	return i.ask(ctx, at, func(ctx context.Context, client *clientv3.Client) error {
		if _, err := client.Get(ctx, "health"); err != nil { // as etcdctl does; the key need not exist
			return err
		}
		conn := clientv3.RetryMaintenanceClient(client, client.ActiveConnection())
		s, err := clientv3.NewMaintenanceFromMaintenanceClient(conn, client).Status(ctx, at)
		switch {
		case err != nil:
			return err
		case s.Header.GetMemberId() != id:
			return errOther
		case s.Leader == 0:
			return errLeader
		case len(s.Errors) > 0:
			return alarmOf(s.Errors)
		}
		return nil
	})
}

// alarmOf returns the known etcd alarms in a member's list of problems.
func alarmOf(said []string) error {
	for _, alarm := range []string{"NOSPACE", "CORRUPT"} {
		if slices.ContainsFunc(said, func(s string) bool { return strings.Contains(s, alarm) }) {
			return words("alarm " + alarm)
		}
	}
	return words("it reports an error")
}
