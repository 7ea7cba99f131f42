// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/kubic-project/image-update-agent/agent/status"
)

// checkPort asks the port for Prometheus, and checks that the daemon answers.
func checkPort(ctx context.Context, address string, daemon *status.Status) Finding {
	const check = "metrics port"
	const ours = "image_update_agent_build_info"
	switch {
	case address == "":
		return skipped(check, "off (metrics.listen is empty); the status socket serves the metrics")
	case daemon == nil:
		return skipped(check, address+" not checked: the daemon is not running")
	}
	body, err := fetch(ctx, "http://"+address+"/metrics")
	switch {
	case err != nil:
		return warn(check, fmt.Sprintf("%s: %v", address, err),
			"run systemctl reload image-update-agent if metrics.listen is new; otherwise see journalctl -u image-update-agent")
	case !bytes.Contains(body, []byte(ours)):
		return warn(check, "another program answers at "+address,
			"find it with `ss -ltnp`, or change metrics.listen and run systemctl reload image-update-agent")
	default:
		return ok(check, address)
	}
}

// portWait bounds the question to a port.
const portWait = 10 * time.Second

// fetch reads the beginning of an answer, which is on this node.
func fetch(ctx context.Context, url string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, portWait)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	client := http.Client{
		Transport: &http.Transport{DisableKeepAlives: true},
		// The daemon does not redirect.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	return io.ReadAll(io.LimitReader(resp.Body, 256<<10))
}
