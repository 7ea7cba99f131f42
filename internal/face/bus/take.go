// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"context"
	"fmt"
	"os"

	"github.com/godbus/dbus/v5"
)

// Take calls a method whose answer is one file descriptor, and returns that. It stays
// open after the connection has ended; the caller closes it.
func Take(ctx context.Context, address string, q Question) (*os.File, error) {
	s, err := dial(ctx, address, true)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", q.Service, err)
	}
	defer s.close()
	defer s.drop()
	body, err := s.ask(ctx, q)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", q.Service, err)
	case len(body) != 1 || body[0] != dbus.UnixFDIndex(0) || len(s.fds) != 1:
		return nil, fmt.Errorf("%s: want one file descriptor as the answer", q.Service)
	}
	file := os.NewFile(uintptr(s.fds[0]), q.Service)
	s.fds = nil
	return file, nil
}
