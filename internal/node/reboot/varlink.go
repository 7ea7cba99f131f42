// SPDX-License-Identifier: Apache-2.0

package reboot

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"syscall"

	"github.com/kubic-project/image-update-agent/internal/base/outside"
	"github.com/kubic-project/image-update-agent/internal/face/bus"
)

// maxMessage limits a varlink message, in bytes; rebootmgr's has 200.
const maxMessage = 64 << 10

// errNobody: there is no socket, or no listener.
var errNobody = errors.New("not there")

// varlink calls a method without parameters and decodes the answer: one JSON message in each direction, terminated by
// NUL (https://varlink.org/Interface-Definition, Protocol).
func varlink(ctx context.Context, socket, method string, into any) error {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", socket)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.ECONNREFUSED):
		return errNobody
	case err != nil:
		return err
	}
	hangUp := func() { _ = conn.Close() } // no data is in transit
	defer hangUp()
	defer context.AfterFunc(ctx, hangUp)() // unblocks pending I/O
	message, err := exchange(conn, method)
	if err != nil {
		if errors.Is(ctx.Err(), context.DeadlineExceeded) { // the deadline closed the connection
			return bus.ErrSilent
		}
		return err
	}
	return decode(message, into)
}

// decode reads an answer.
func decode(message []byte, into any) error {
	var answer struct {
		Error      string
		Parameters json.RawMessage
	}
	if err := json.Unmarshal(message, &answer); err != nil {
		return outside.Error(fmt.Errorf("varlink: %w", err))
	}
	if answer.Error != "" {
		return fmt.Errorf("varlink: %s", outside.Text(answer.Error))
	}
	if len(answer.Parameters) == 0 {
		return errors.New("varlink: an answer without parameters")
	}
	if err := json.Unmarshal(answer.Parameters, into); err != nil {
		return outside.Error(fmt.Errorf("varlink: %w", err))
	}
	return nil
}

// exchange sends the call and reads one message, without its NUL.
func exchange(conn net.Conn, method string) ([]byte, error) {
	call, err := json.Marshal(map[string]any{"method": method, "parameters": struct{}{}})
	if err != nil {
		return nil, err
	}
	if _, err := conn.Write(append(call, 0)); err != nil {
		return nil, err
	}
	message, err := bufio.NewReader(io.LimitReader(conn, maxMessage)).ReadBytes(0)
	switch {
	case errors.Is(err, io.EOF) && len(message) == maxMessage:
		return nil, fmt.Errorf("varlink: more than %d KiB", maxMessage>>10)
	case errors.Is(err, io.EOF):
		return nil, errors.New("varlink: connection closed before the end of the answer")
	case err != nil:
		return nil, err
	}
	return bytes.TrimSuffix(message, []byte{0}), nil
}
