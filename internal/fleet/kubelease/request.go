// SPDX-License-Identifier: Apache-2.0

package kubelease

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/kubic-project/image-update-agent/agent/fleet"
	"github.com/kubic-project/image-update-agent/internal/base/lazyregexp"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
	"github.com/kubic-project/image-update-agent/internal/base/sent"
	"github.com/kubic-project/image-update-agent/internal/fleet/kubeconfig"
	"github.com/kubic-project/image-update-agent/internal/registry/distspec"
)

func (s *session) collection() string {
	return "/apis/" + apiVersion + "/namespaces/" + s.namespace + "/leases"
}

func (s *session) get(ctx context.Context) (*object, error) {
	return s.lease(ctx, http.MethodGet, s.collection()+"/"+s.name, nil)
}

func (s *session) put(ctx context.Context, l *object) (*object, error) {
	return s.lease(ctx, http.MethodPut, s.collection()+"/"+s.name, l)
}

// create creates the Lease without a holder.
func (s *session) create(ctx context.Context) error {
	l := &object{APIVersion: apiVersion, Kind: kind, Metadata: fields{}, Spec: fields{}}
	l.Metadata.set("name", s.name)
	l.Metadata.set("namespace", s.namespace)
	_, err := s.lease(ctx, http.MethodPost, s.collection(), l)
	return err
}

// lease sends a request that is answered with the Lease.
func (s *session) lease(ctx context.Context, method, path string, l *object) (*object, error) {
	body, err := s.send(ctx, method, path, l)
	if err != nil {
		return nil, err
	}
	l, err = parse(body, s.namespace, s.name)
	if err != nil {
		return nil, s.strange(err)
	}
	return l, nil
}

// send sends a request, and returns the body of a success. Its errors are *fleet.LockError.
func (s *session) send(ctx context.Context, method, path string, l *object) ([]byte, error) {
	var body []byte
	if l != nil {
		body, _ = json.Marshal(l) // fields of JSON
	}
	ctx, maybeSent := sent.Watch(ctx)
	answer, err := s.config.Send(ctx, s.transport, kubeconfig.Question{
		Method: method, Path: path, Version: s.o.Version, Body: body, Limit: maxBody,
	})
	s.written = s.written || method == http.MethodPut && maybeSent()
	if refusal, is := errors.AsType[*kubeconfig.Refusal](err); is {
		return nil, s.refused(refusal)
	}
	if err != nil {
		return nil, s.failed(ctx, err)
	}
	return answer, nil
}

// The reasons of Kubernetes' Status that the client knows.
const (
	reasonNotFound = "NotFound"
	reasonConflict = "Conflict"
	reasonExists   = "AlreadyExists"
)

// refused returns the error for an answer without success. An answer that the API server did not write, such as that of
// a proxy, has no reason. After a 5xx the request may have succeeded.
func (s *session) refused(a *kubeconfig.Refusal) error {
	e := s.fault(a.Code, nil)
	e.RetryAt = distspec.RetryAfter(a.Header.Get("Retry-After"), s.o.Now(), maxRetry)
	said := a.Status
	switch {
	case !a.IsStatus:
		e.Err = errors.New("the answer is not from an API server")
	case a.Code >= http.StatusInternalServerError:
		e.Kind, e.Err = outside.Line(said.Reason, maxReason), errors.New(outside.Text(said.Message))
	default:
		e.Kind, e.Value = outside.Line(said.Reason, maxReason), outside.Text(said.Message)
	}
	if e.Kind == reasonNotFound && said.About != "leases" && said.About != "nodes" {
		e.Kind = "" // such as the namespace
	}
	return e
}

func isReason(err error, reason string) bool {
	e, is := errors.AsType[*fleet.LockError](err)
	return is && e.Err == nil && e.Kind == reason
}

// isAway reports whether the API server has not answered, or cannot answer yet.
func isAway(err error) bool {
	e, is := errors.AsType[*fleet.LockError](err)
	_, isConfig := errors.AsType[configError](err)
	_, isCertificate := errors.AsType[*tls.CertificateVerificationError](err)
	if !is || isConfig || isCertificate {
		return false
	}
	return e.Status == 0 && e.Err != nil || e.Status == http.StatusTooManyRequests ||
		e.Status >= http.StatusInternalServerError
}

// failed returns the error for a request without an answer.
func (s *session) failed(ctx context.Context, err error) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		err = fmt.Errorf("no answer within %s", s.o.Timeout)
	}
	return s.fault(0, outside.Error(err))
}

// strange returns the error for a success with an unusable answer.
func (s *session) strange(err error) error { return s.fault(http.StatusOK, err) }

// fault returns the error for a request with the HTTP status of its answer; 0: none.
func (s *session) fault(status int, err error) *fleet.LockError {
	return &fleet.LockError{Lock: s.title(), Server: s.config.Host(), Status: status, Err: err, Unsent: !s.written}
}

// busy returns the error for a Lease that others change all the time.
func (s *session) busy() error {
	return &fleet.LockError{
		Lock: s.title(), Server: s.config.Host(), Status: http.StatusConflict, Kind: reasonConflict,
		Value: fmt.Sprintf("others changed it %d times in a row", attempts),
	}
}

// taken returns the error for a Lease that another holder has.
func (s *session) taken(ctx context.Context, l *object) (fleet.LockAnswer, error) {
	e := &fleet.LockError{
		Lock: s.title(), Server: s.config.Host(), Taken: true,
		Answer: fleet.LockAnswer{Holders: []fleet.LockHolder{s.look(ctx, l)}, Slots: 1},
	}
	if l.holder() == s.o.Node {
		e.Value = "held by another machine with the name of this node"
	}
	return e.Answer, e
}

var nodeName = lazyregexp.New(`^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$`)

// look returns the holder of a Lease, and whether the cluster has no such node, as far as the kubeconfig may ask.
func (s *session) look(ctx context.Context, l *object) fleet.LockHolder {
	h := l.asHolder()
	if name := l.holder(); nodeName().MatchString(name) && !strings.Contains(name, "..") {
		_, err := s.send(ctx, http.MethodGet, "/api/v1/nodes/"+name, nil)
		h.Gone = isReason(err, reasonNotFound)
	}
	return h
}

const (
	apiVersion = "coordination.k8s.io/v1"
	kind       = "Lease"
	// machineKey is the annotation with the holder's machine.
	machineKey = "image-update-agent.opensuse.org/machine"
	// microTime is the format of Kubernetes' MicroTime.
	microTime = "2006-01-02T15:04:05.000000Z07:00"
)

// object is a Lease. What the client does not know is written as it was read.
type object struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   fields `json:"metadata"`
	Spec       fields `json:"spec"`

	annotations map[string]string
}

// fields are the fields of an object.
type fields map[string]json.RawMessage

func (f fields) text(name string) (text string) {
	_ = json.Unmarshal(f[name], &text) // checked in parse
	return text
}

func (f fields) set(name string, value any) {
	f[name], _ = json.Marshal(value) // texts only
}

var (
	errNoLease = errors.New("the answer is not a Lease")
	errLeaving = errors.New("the Lease is being deleted: it locks nothing until " +
		"its finalizers have run and it is created again")
	errForeign = errors.New("the Lease has leaseDurationSeconds: it belongs to another program; choose another name")
)

// parse reads a Lease. It must have a resourceVersion, without which an update would be unconditional.
func parse(body []byte, namespace, name string) (*object, error) {
	l := &object{}
	if json.Unmarshal(body, l) != nil || l.APIVersion != apiVersion || l.Kind != kind {
		return nil, errNoLease
	}
	if l.Spec == nil {
		l.Spec = fields{}
	}
	for _, f := range []struct {
		of   fields
		name string
	}{{l.Metadata, "namespace"}, {l.Metadata, "name"}, {l.Metadata, "resourceVersion"}, {l.Spec, "holderIdentity"}} {
		if raw, has := f.of[f.name]; has && json.Unmarshal(raw, new(string)) != nil {
			return nil, errNoLease
		}
	}
	if raw, has := l.Metadata["annotations"]; has && json.Unmarshal(raw, &l.annotations) != nil {
		return nil, errNoLease
	}
	if l.Metadata.text("namespace") != namespace || l.Metadata.text("name") != name ||
		l.Metadata.text("resourceVersion") == "" {
		return nil, errNoLease
	}
	if raw, has := l.Spec["leaseDurationSeconds"]; has && string(raw) != "null" {
		return nil, errForeign
	}
	return l, nil
}

func (l *object) holder() string  { return l.Spec.text("holderIdentity") }
func (l *object) machine() string { return l.annotations[machineKey] }

// isLeaving reports whether the Lease is being deleted: with its last finalizer it vanishes, and so does its holder.
func (l *object) isLeaving() bool {
	raw, has := l.Metadata["deletionTimestamp"]
	return has && string(raw) != "null"
}

// take makes a node the holder. The time at which it became the holder stays.
func (l *object) take(node, machine string, now time.Time) {
	if l.holder() != node || l.Spec["acquireTime"] == nil {
		l.Spec.set("acquireTime", now.UTC().Format(microTime))
	}
	l.Spec.set("holderIdentity", node)
	l.Spec.set("renewTime", now.UTC().Format(microTime))
	if l.annotations == nil {
		l.annotations = map[string]string{}
	}
	l.annotations[machineKey] = machine
	l.Metadata.set("annotations", l.annotations)
}

// free removes the holder. The time makes it a change.
func (l *object) free(now time.Time) {
	delete(l.Spec, "holderIdentity")
	delete(l.Spec, "acquireTime")
	l.Spec.set("renewTime", now.UTC().Format(microTime))
	delete(l.annotations, machineKey)
	l.Metadata.set("annotations", l.annotations)
}

// asHolder returns the holder for people.
func (l *object) asHolder() fleet.LockHolder {
	since, _ := time.Parse(time.RFC3339Nano, l.Spec.text("acquireTime")) // zero if a person wrote something else
	return fleet.LockHolder{ID: outside.Line(l.holder(), maxHolder), Since: outside.Time(since)}
}
