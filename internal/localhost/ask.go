// SPDX-License-Identifier: Apache-2.0

package localhost

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/ownhost"
	"github.com/kubic-project/image-update-agent/internal/outside"
)

// agentName is the User-Agent of Ask. Its requests start no container, so they are not noted.
const agentName = "image-update-agent"

// Ask asks the own host what a tag names, as containerd does, until ctx ends. The error says why the answer is not that
// of the entry.
func Ask(ctx context.Context, e ownhost.Entry) error { return ask(ctx, ownhost.Address, e) }

func ask(ctx context.Context, address string, e ownhost.Entry) error {
	named, err := digestAt(ctx, address, e)
	if err != nil {
		return fmt.Errorf("own host at %s: %w", address, err)
	}
	if named != e.Digest {
		return fmt.Errorf("own host at %s: %s:%s is %q, not %s: another program may answer there",
			address, e.Repository, e.Tag, outside.Text(named.String()), e.Digest)
	}
	return nil
}

// digestAt returns the digest that the own host at an address gives a tag.
func digestAt(ctx context.Context, address string, e ownhost.Entry) (digest.Digest, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	head := "HEAD /v2/" + e.Repository + "/manifests/" + e.Tag + "?ns=" + e.Registry + " HTTP/1.1\r\n" +
		"Host: " + address + "\r\nUser-Agent: " + agentName + "\r\nConnection: close\r\n\r\n"
	if _, err := io.WriteString(conn, head); err != nil {
		return "", err
	}
	answer := bufio.NewReader(io.LimitReader(conn, maxRequest))
	response, err := http.ReadResponse(answer, &http.Request{Method: http.MethodHead})
	if err != nil {
		return "", err
	}
	_ = response.Body.Close() // HEAD has none
	if response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%d %s", response.StatusCode, http.StatusText(response.StatusCode))
	}
	return digest.Digest(response.Header.Get("Docker-Content-Digest")), nil
}
