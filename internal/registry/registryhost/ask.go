// SPDX-License-Identifier: Apache-2.0

package registryhost

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent/localregistry"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
	"github.com/kubic-project/image-update-agent/internal/registry/registryhost/answer"
)

// Ask requests a tag from the local registry as containerd does, until ctx ends. It returns an error if the answer
// differs from the entry.
func Ask(ctx context.Context, e localregistry.Entry) error { return ask(ctx, localregistry.Address, e) }

func ask(ctx context.Context, address string, e localregistry.Entry) error {
	named, err := digestAt(ctx, address, e)
	if err != nil {
		return fmt.Errorf("local registry at %s: %w", address, err)
	}
	if named != digest.Digest(e.Digest) {
		return fmt.Errorf("local registry at %s: %s:%s is %q, not %s: another program may answer there",
			address, e.Repository, e.Tag, outside.Text(named.String()), e.Digest)
	}
	return nil
}

// digestAt returns the digest of a tag from the local registry at an address.
func digestAt(ctx context.Context, address string, e localregistry.Entry) (digest.Digest, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	head := "HEAD /v2/" + e.Repository + "/manifests/" + e.Tag + "?ns=" + e.Registry + " HTTP/1.1\r\n" +
		"Host: " + address + "\r\nUser-Agent: " + answer.AgentName + "\r\nConnection: close\r\n\r\n"
	if _, err := io.WriteString(conn, head); err != nil {
		return "", err
	}
	reader := bufio.NewReader(io.LimitReader(conn, maxAnswer))
	response, err := http.ReadResponse(reader, &http.Request{Method: http.MethodHead})
	if err != nil {
		return "", err
	}
	_ = response.Body.Close() // an answer to HEAD has none
	if response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%d %s", response.StatusCode, http.StatusText(response.StatusCode))
	}
	return digest.Digest(response.Header.Get("Docker-Content-Digest")), nil
}
