// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"
)

// getPatience is the timeout for one response of a program on this machine, which may be busy.
const getPatience = time.Minute

// get returns the body of a 200 response; other statuses are errors.
func get(ctx context.Context, transport http.RoundTripper, url string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, getPatience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, err
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", url, response.Status, body)
	}
	return body, err
}

// getAlone is get on a new connection, as a prober asks: a kept connection would not survive a restart of the server.
func getAlone(ctx context.Context, url string) ([]byte, error) {
	return get(ctx, &http.Transport{DisableKeepAlives: true}, url)
}
