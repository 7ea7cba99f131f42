// SPDX-License-Identifier: Apache-2.0

package quorum

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/kubic-project/image-update-agent/agent/fleet"
)

const (
	errNoEtcd   = words("no pod manifest names its members")
	errMembers  = words("no list of members")
	errClusters = words("its URLs lead to several clusters")
	errRemoved  = words("the member of this node is not in the list of members")
	errOther    = words("another member answers")
	errLeader   = words("it has no leader")
)

var errMany = words(fmt.Sprintf("more than %d members", maxParts))

// member is a member as etcd lists it.
type member struct {
	id      uint64
	name    string
	peers   []string // URLs, as its cluster has them
	clients []string
	learner bool // it has no vote
}

// cluster is an etcd as its members list it.
type cluster struct {
	identity
	id      uint64
	members []member
	own     map[uint64][]string // members of this node, and where they listen
}

// answer is what one URL says.
type answer struct {
	cluster uint64
	by      uint64 // the member that answers
	members []member
	err     error
}

// clusterOf asks all URLs of an etcd for its members, and takes the first list.
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

// hasOwn reports whether the members that answer on this node are in the list.
func (c cluster) hasOwn() bool {
	for id := range c.own {
		if !slices.ContainsFunc(c.members, func(m member) bool { return m.id == id }) {
			return false
		}
	}
	return true
}

// list asks one URL for the list of members.
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

// join makes one of clusters that are the same, as the etcd of this node and that of its API server. An etcd of this
// node that does not answer is a member of one that does, if that names it.
func join(etcds []etcd, found []cluster, errs []error) (clusters []cluster, failed []error) {
	for n, c := range found {
		switch at := slices.IndexFunc(clusters, func(other cluster) bool { return other.id == c.id }); {
		case errs[n] != nil:
		case at >= 0:
			maps.Copy(clusters[at].own, c.own)
		default:
			clusters = append(clusters, c)
		}
	}
	for n, e := range etcds {
		hasAnswered := found[n].members != nil
		if errs[n] != nil && (hasAnswered || !slices.ContainsFunc(clusters, e.claim)) {
			failed = append(failed, &misread{e.file, errs[n]})
		}
	}
	return clusters, failed
}

// claim takes the member of a cluster that has the URLs of this node's etcd, which does not answer itself, and reports
// whether exactly one has them.
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

// health asks each member with a vote whether it is healthy.
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
				p.Seen = "the URLs of its clients are not understood"
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

var memberName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,80}$`)

// title is the name of a member, or its id where the name is no plain word.
func (m member) title() string {
	if memberName.MatchString(m.name) {
		return m.name
	}
	return fmt.Sprintf("%x", m.id)
}

// isHealthy asks at one URL of a member: it reads what the quorum has, answers itself, has a leader and no alarm. While
// a leader is elected it reads nothing, so that is tried until the time is over.
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

// alarmOf names what a member says is wrong by the words of etcd that are known.
func alarmOf(said []string) error {
	for _, alarm := range []string{"NOSPACE", "CORRUPT"} {
		if slices.ContainsFunc(said, func(s string) bool { return strings.Contains(s, alarm) }) {
			return words("alarm " + alarm)
		}
	}
	return words("it reports an error")
}
