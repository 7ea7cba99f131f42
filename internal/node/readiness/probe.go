// SPDX-License-Identifier: Apache-2.0

package readiness

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/kubic-project/image-update-agent/internal/base/outside"
	"github.com/kubic-project/image-update-agent/manifests"
)

const (
	// maxTimeout limits the timeout in a pod manifest. Kubeadm's longest is 15 s. A probe that takes longer, and may, has
	// no result.
	maxTimeout = 30 * time.Second
	// maxBody is kubelet's limit: a server that cannot finish its answer is not ready.
	maxBody = 10 << 10
	// maxRedirects is the limit of the standard library, and so of kubelet.
	maxRedirects = 10
)

// unrunnable returns why the agent cannot run a probe; "" if it can.
func unrunnable(p manifests.Probe, canExec bool) string {
	switch p.Kind {
	case manifests.ProbeExec:
		if !canExec {
			return p.Kind + " probe, which only kubelet can run"
		}
		return ""
	case manifests.ProbeHTTP:
		if scheme := strings.ToLower(p.Scheme); scheme != "http" && scheme != "https" {
			return fmt.Sprintf("httpGet probe with the unknown scheme %.40q", p.Scheme)
		}
	case manifests.ProbeTCP, manifests.ProbeGRPC:
	default:
		return fmt.Sprintf("probe of unknown kind %.40q", p.Kind)
	}
	if p.Port < 1 || p.Port > 65535 {
		return p.Kind + " probe without a usable port"
	}
	return ""
}

// unknownError is the error of a run without a result: kubelet throws it away, too.
type unknownError struct{ error }

func (e *unknownError) Unwrap() error { return e.error }

// probe runs a probe in a container, or against the first host that accepts a connection. If none does, it returns the
// first error.
func (c *Checker) probe(ctx context.Context, p manifests.Probe, podAddress, container string) error {
	timeout := min(p.Timeout, maxTimeout)
	if timeout <= 0 {
		timeout = time.Second // kubelet's default
	}
	err := c.within(ctx, timeout, p, podAddress, container)
	if _, isLate := errors.AsType[*lateError](err); isLate && timeout < p.Timeout {
		return &unknownError{fmt.Errorf("%w, and the probe may take %v", err, p.Timeout)}
	}
	return err
}

func (c *Checker) within(
	ctx context.Context, timeout time.Duration, p manifests.Probe, podAddress, container string,
) error {
	if p.Kind == manifests.ProbeExec {
		return c.exec(ctx, p, container, timeout)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var first error
	hosts := c.hosts(ctx, p, podAddress)
	for _, host := range hosts {
		address := net.JoinHostPort(host, strconv.Itoa(p.Port))
		what, err := c.ask(ctx, p, address)
		if err == nil {
			return nil
		}
		if first == nil || !isRefused(err) {
			first = fmt.Errorf("%s: %w", what, withTimeout(err, timeout))
		}
		if !isRefused(err) || ctx.Err() != nil {
			break
		}
	}
	if hosts == nil {
		return &unknownError{errors.New("the node has no address")}
	}
	return first
}

// ask runs a probe against an address. what is the request, for people.
func (c *Checker) ask(ctx context.Context, p manifests.Probe, address string) (what string, err error) {
	switch p.Kind {
	case manifests.ProbeTCP:
		return "TCP " + outside.Text(address), c.connect(ctx, address)
	case manifests.ProbeGRPC:
		return "gRPC " + outside.Text(address), c.health(ctx, address, p.Service)
	default:
		target := targetOf(p, address)
		return "GET " + shown(target), c.get(ctx, target, p.Headers)
	}
}

// exec runs a command in a container.
func (c *Checker) exec(ctx context.Context, p manifests.Probe, container string, timeout time.Duration) error {
	code, err := c.Exec(ctx, container, p.Command, timeout)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return &lateError{fmt.Sprintf("exec: no end within %v", timeout)}
	case err != nil:
		return &unknownError{fmt.Errorf("exec probe: %w", outside.Error(err))}
	case code != 0:
		return fmt.Errorf("exec: exit code %d", code)
	}
	return nil
}

// health asks for the health of a service by gRPC's health protocol.
func (c *Checker) health(ctx context.Context, address, service string) error {
	var refused error
	conn, err := grpc.NewClient("passthrough:///"+address,
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithUserAgent(c.UserAgent),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxBody)), grpc.WithDisableServiceConfig(),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			conn, err := c.transport.DialContext(ctx, "tcp", address)
			if err != nil {
				refused = err
			}
			return conn, err
		}))
	if err != nil {
		return err
	}
	answer, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{Service: service})
	closing := conn.Close() // waits for the dialer
	switch {
	case err == nil && answer.GetStatus() != healthpb.HealthCheckResponse_SERVING:
		return errors.New(answer.GetStatus().String())
	case err == nil:
		return closing
	case ctx.Err() != nil:
		return ctx.Err()
	case refused != nil:
		return refused
	}
	return errors.New(outside.Text(status.Convert(err).Message()))
}

// isRefused reports whether there is no listener.
func isRefused(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "dial"
}

func (c *Checker) connect(ctx context.Context, address string) error {
	conn, err := c.transport.DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return conn.Close()
}

// targetOf builds the URL as kubelet does (formatURL in
// k8s.io/kubernetes/pkg/probe/http/request.go): a path may have a query, and one that does
// not parse is taken literally.
func targetOf(p manifests.Probe, address string) *url.URL {
	target, err := url.Parse(p.Path)
	if err != nil {
		target = &url.URL{Path: p.Path}
	}
	target.Scheme, target.Host = strings.ToLower(p.Scheme), address
	return target
}

func (c *Checker) get(ctx context.Context, target *url.URL, headers []manifests.Header) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), http.NoBody)
	if err != nil {
		return err
	}
	req.Header = http.Header{}
	for _, h := range headers {
		req.Header.Add(h.Name, h.Value)
	}
	if req.Header["User-Agent"] == nil {
		req.Header.Set("User-Agent", c.UserAgent)
	}
	if req.Header["Accept"] == nil {
		req.Header.Set("Accept", "*/*")
	}
	req.Host = req.Header.Get("Host")
	client := http.Client{Transport: c.transport, CheckRedirect: sameHost}
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode < http.StatusOK || res.StatusCode >= http.StatusBadRequest {
		return statusError(res.StatusCode)
	}
	_, err = io.CopyN(io.Discard, res.Body, maxBody)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

// sameHost follows redirects on the same host. A redirect to another host counts as
// success, as with kubelet.
func sameHost(req *http.Request, via []*http.Request) error {
	if req.URL.Hostname() != via[0].URL.Hostname() {
		return http.ErrUseLastResponse
	}
	if len(via) >= maxRedirects {
		return fmt.Errorf("more than %d redirects", maxRedirects)
	}
	return nil
}

// hosts returns the names or addresses to try.
func (c *Checker) hosts(ctx context.Context, p manifests.Probe, podAddress string) []string {
	switch {
	case p.Host != "":
		return []string{p.Host}
	case podAddress != "":
		return []string{podAddress}
	}
	var hosts []string
	for _, address := range c.Addresses(ctx) {
		hosts = append(hosts, address.String())
	}
	return hosts
}
