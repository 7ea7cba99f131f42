// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"syscall"

	remoteerrors "github.com/containerd/containerd/v2/core/remotes/errors"

	"github.com/kubic-project/image-update-agent/agent"
)

// causeOf puts what went wrong below an answer into one word. A name server that
// takes too long is its own cause: it is not the registry that is slow.
func causeOf(err error) agent.Cause {
	if status, ok := errors.AsType[remoteerrors.ErrUnexpectedStatus](err); ok {
		return causeOfStatus(status.StatusCode)
	}
	if _, ok := errors.AsType[*net.DNSError](err); ok {
		return agent.CauseDNS
	}
	if isTLS(err) {
		return agent.CauseTLS
	}
	if t, ok := errors.AsType[net.Error](err); ok && t.Timeout() || errors.Is(err, errStalled) {
		return agent.CauseTimeout
	}
	for _, number := range []syscall.Errno{syscall.ECONNREFUSED, syscall.EHOSTUNREACH, syscall.ENETUNREACH} {
		if errors.Is(err, number) {
			return agent.CauseRefused
		}
	}
	if errors.Is(err, errPlainCredentials) {
		return agent.CauseAuth
	}
	return agent.CauseOther
}

// isTLS reports that no connection came about that proves who the host is.
func isTLS(err error) bool {
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return true
	}
	if errors.Is(err, http.ErrSchemeMismatch) {
		return true // it speaks plain http
	}
	if _, ok := errors.AsType[tls.AlertError](err); ok {
		return true
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return true
	}
	_, ok := errors.AsType[x509.HostnameError](err)
	return ok
}

func causeOfStatus(status int) agent.Cause {
	switch {
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return agent.CauseAuth
	case status == http.StatusNotFound:
		return agent.CauseNotFound
	case status == http.StatusTooManyRequests:
		return agent.CauseRateLimited
	case status >= http.StatusInternalServerError:
		return agent.CauseServerError
	default:
		return agent.CauseOther
	}
}
