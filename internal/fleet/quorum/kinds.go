// SPDX-License-Identifier: Apache-2.0

package quorum

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"syscall"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// words is an error with a fixed text.
type words string

func (w words) Error() string { return string(w) }

// errStatus is an HTTP answer other than 200.
type errStatus struct{ code int }

func (e *errStatus) Error() string { return fmt.Sprintf("%d %s", e.code, http.StatusText(e.code)) }

// kindOf returns why a call failed, as a fixed text: texts of servers are never passed on.
func kindOf(err error) string {
	if own, is := errors.AsType[words](err); is {
		return string(own)
	}
	if answer, is := errors.AsType[*errStatus](err); is {
		return answer.Error()
	}
	if said := kindOfTLS(err); said != "" {
		return said
	}
	errno, isErrno := errors.AsType[syscall.Errno](err)
	_, isDNS := errors.AsType[*net.DNSError](err)
	coded, isCoded := errors.AsType[interface {
		error
		Code() codes.Code
	}](err)
	code := status.Code(err)
	if isCoded {
		code = coded.Code()
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded) || code == codes.DeadlineExceeded:
		return "no answer in time"
	case errors.Is(err, fs.ErrNotExist):
		return "no such file"
	case isErrno:
		return errno.Error()
	case isDNS:
		return "its name does not resolve"
	case code != codes.Unknown && code != codes.OK:
		return "gRPC code " + code.String()
	}
	return "cannot read its answer"
}

// kindOfTLS returns why a TLS connection failed; empty for other errors.
func kindOfTLS(err error) string {
	_, isAuthority := errors.AsType[x509.UnknownAuthorityError](err)
	_, isName := errors.AsType[x509.HostnameError](err)
	_, isCertificate := errors.AsType[*tls.CertificateVerificationError](err)
	_, isRecord := errors.AsType[tls.RecordHeaderError](err)
	remote, is := errors.AsType[*net.OpError](err)
	switch {
	case isAuthority:
		return "its certificate is signed by an unknown authority"
	case isName:
		return "its certificate is for another name"
	case isCertificate:
		return "its certificate is not valid"
	case isRecord:
		return "it does not speak TLS"
	case is && remote.Op == "remote error": // a TLS alert, which has one code per text
		return remote.Err.Error()
	}
	return ""
}
