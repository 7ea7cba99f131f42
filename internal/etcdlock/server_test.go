// SPDX-License-Identifier: Apache-2.0

package etcdlock_test

import (
	"context"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/internal/etcdlock"
	"github.com/kubic-project/image-update-agent/internal/quorum"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// store is one key, as a cluster of etcd keeps it, with the faults of a test.
type store struct {
	t        *testing.T
	mu       sync.Mutex
	revision int64 // of the store
	changed  int64 // revision of the key; 0: there is none
	value    string
	asked    []string
	fault    func(method string) fault // nil: none
	late     []func()                  // transactions that are executed later
}

// fault is what happens to a request.
type fault int

const (
	none   fault = iota
	failed       // it is not executed
	lost         // it is executed, and its answer is lost
	late         // it fails, and is executed when the test says so
	denied
)

// errAway is not repeated by etcd's client at the same member.
var errAway = status.Error(codes.Internal, "SECRET: the member is going away")

// put writes the key as a person does.
func (s *store) put(value string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.set(value)
}

func (s *store) set(value string) {
	s.revision++
	s.changed, s.value = s.revision, value
}

// del deletes the key.
func (s *store) del() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.revision++
	s.changed, s.value = 0, ""
}

func (s *store) holds() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.value
}

// arrive executes the late transactions.
func (s *store) arrive() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, do := range s.late {
		do()
	}
	s.late = nil
}

// do executes a request with its fault.
func (s *store) do(method string, execute func()) error {
	what := none
	if s.fault != nil {
		what = s.fault(method)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, method)
	switch what {
	case failed:
		return errAway
	case denied:
		return status.Error(codes.PermissionDenied, "SECRET")
	case late:
		s.late = append(s.late, execute)
		return errAway
	case lost:
		execute()
		return errAway
	case none:
		execute()
	}
	return nil
}

// member is a member of the cluster, at a URL.
type member struct {
	pb.UnimplementedKVServer
	*store
	url  string
	stop func()
}

// start starts a cluster.
func start(t *testing.T, members int) (*store, []*member) {
	t.Helper()
	s := &store{t: t, revision: 1}
	var all []*member
	for range members {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		server := grpc.NewServer()
		m := &member{store: s, url: "http://" + l.Addr().String(), stop: server.Stop}
		pb.RegisterKVServer(server, m)
		go func() { _ = server.Serve(l) }()
		t.Cleanup(server.Stop)
		all = append(all, m)
	}
	return s, all
}

func (m *member) Range(_ context.Context, r *pb.RangeRequest) (*pb.RangeResponse, error) {
	assert.Equal(m.t, etcdlock.Key, string(r.Key))
	assert.Empty(m.t, r.RangeEnd)
	assert.False(m.t, r.Serializable, "it is linearizable")
	out := &pb.RangeResponse{Header: &pb.ResponseHeader{}}
	err := m.do("Range", func() {
		if m.changed != 0 {
			out.Kvs = []*mvccpb.KeyValue{{Key: r.Key, Value: []byte(m.value), ModRevision: m.changed}}
		}
	})
	return out, err
}

func (m *member) Txn(_ context.Context, r *pb.TxnRequest) (*pb.TxnResponse, error) {
	require.Len(m.t, r.Compare, 1)
	require.Len(m.t, r.Success, 1)
	require.Empty(m.t, r.Failure)
	compare, put := r.Compare[0], r.Success[0].GetRequestPut()
	assert.Equal(m.t, pb.Compare_MOD, compare.Target)
	assert.Equal(m.t, pb.Compare_EQUAL, compare.Result)
	assert.Equal(m.t, []string{etcdlock.Key, etcdlock.Key}, []string{string(compare.Key), string(put.Key)})
	assert.Zero(m.t, put.Lease)
	out := &pb.TxnResponse{Header: &pb.ResponseHeader{}}
	err := m.do("Txn", func() {
		if out.Succeeded = compare.GetModRevision() == m.changed; out.Succeeded {
			m.set(string(put.Value))
		}
	})
	return out, err
}

// etcd returns the etcd of a node whose API server uses members in this order.
func etcd(t *testing.T, members ...*member) func(context.Context) (etcdlock.Ask, error) {
	t.Helper()
	var urls []string
	for _, m := range members {
		urls = append(urls, m.url)
	}
	return func(context.Context) (etcdlock.Ask, error) {
		return quorum.Control{}.Etcd([]node.PodFile{{Name: "kube-apiserver.yaml", Data: []byte(
			"apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  containers:\n  - name: kube-apiserver\n" +
				"    command: [kube-apiserver, '--etcd-servers=" + strings.Join(urls, ",") + "']\n")}})
	}
}
