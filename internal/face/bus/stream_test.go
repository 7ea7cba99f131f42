// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/godbus/dbus/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// message makes the bytes of a call as a bus passes it on.
func message(tb testing.TB, order binary.ByteOrder, flags dbus.Flags, args ...any) []byte {
	tb.Helper()
	m := &dbus.Message{Type: dbus.TypeMethodCall, Flags: flags, Body: args, Headers: map[dbus.HeaderField]dbus.Variant{
		dbus.FieldPath: dbus.MakeVariant(dbus.ObjectPath("/a")), dbus.FieldMember: dbus.MakeVariant("Say"),
		dbus.FieldInterface: dbus.MakeVariant("c.d"), dbus.FieldDestination: dbus.MakeVariant("e.f"),
		dbus.FieldSender: dbus.MakeVariant(":1.7"), dbus.FieldReplySerial: dbus.MakeVariant(uint32(1)),
	}}
	if len(args) > 0 {
		m.Headers[dbus.FieldSignature] = dbus.MakeVariant(dbus.SignatureOf(args...))
	}
	var buf bytes.Buffer
	require.NoError(tb, m.EncodeTo(&buf, order))
	order.PutUint32(buf.Bytes()[8:], 9)
	return buf.Bytes()
}

// over is a stream on which that comes.
func over(tb testing.TB, data []byte) *stream {
	tb.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(tb, err)
	var ends [2]*net.UnixConn
	for i, fd := range pair {
		file := os.NewFile(uintptr(fd), "pair")
		conn, err := net.FileConn(file)
		require.NoError(tb, errors.Join(err, file.Close()))
		ends[i] = conn.(*net.UnixConn)
	}
	s := &stream{conn: ends[0], oob: make([]byte, 64)}
	sent, data := make(chan struct{}), bytes.Clone(data)
	go func() {
		defer close(sent)
		_, _ = ends[1].Write(data) // the reader may not want all of it
		_ = ends[1].Close()
	}()
	tb.Cleanup(func() { s.close(); <-sent })
	return s
}

func readCall(tb testing.TB, data []byte) (Call, bool, error) {
	tb.Helper()
	return over(tb, data).read()
}

// read reads the next message; false: it was no call that anybody is told of.
func (s *stream) read() (Call, bool, error) {
	call, err := s.call()
	return call, call.Sender != "", err
}

// The fields of a head come in any order, in any of which the sender is found.
func TestTheSenderIsFound(t *testing.T) {
	t.Parallel()
	for _, order := range []binary.ByteOrder{binary.LittleEndian, binary.BigEndian} {
		for range 50 { // the library puts them in the order of a map
			for _, args := range [][]any{{}, {[]string{"x"}, true, uint64(1), "reason"}, {strings.Repeat("x", maxCall)}} {
				call, ok, err := readCall(t, message(t, order, 0, args...))
				require.NoError(t, err)
				require.True(t, ok)
				assert.Equal(t, ":1.7", call.Sender)
				assert.Equal(t, uint32(9), call.serial)
			}
		}
	}
}

func TestFlags(t *testing.T) {
	t.Parallel()
	frame := message(t, binary.LittleEndian, dbus.FlagNoReplyExpected)
	call, ok, err := readCall(t, frame)
	require.NoError(t, err)
	assert.True(t, ok && call.NoReply && !call.Interactive)
	frame[2] = 0xf4
	call, ok, err = readCall(t, frame)
	require.NoError(t, err)
	assert.True(t, ok && !call.NoReply && call.Interactive)
	assert.NoError(t, call.Err, "flags of the future are passed over")
}

// What the bus lets through and the library does not read has its answer, too.
func TestUnreadableCallsAreKnownBySender(t *testing.T) {
	t.Parallel()
	frame := message(t, binary.LittleEndian, 0, true)
	frame[len(frame)-4] = 2 // no boolean
	call, ok, err := readCall(t, frame)
	require.NoError(t, err)
	assert.True(t, ok)
	assert.Equal(t, ":1.7", call.Sender)
	assert.Error(t, call.Err)
}

// What has no known sender is passed over, and what cannot be a message ends the
// connection.
func TestHeadsThatNobodyHasSent(t *testing.T) {
	t.Parallel()
	good := message(t, binary.LittleEndian, 0)
	sender := bytes.Index(good, []byte(":1.7"))
	for name, c := range map[string]struct {
		spoil func(frame []byte) []byte
		err   error
	}{
		"a sender longer than the head": {func(f []byte) []byte { binary.LittleEndian.PutUint32(f[sender-4:], 1<<31); return f }, nil},
		"no sender":                     {func(f []byte) []byte { f[sender-8] = byte(dbus.FieldDestination); return f }, nil},
		"a long head": {func(f []byte) []byte {
			binary.LittleEndian.PutUint32(f[12:], maxFields+8)
			return append(f, make([]byte, maxFields+8+headLength-len(f))...)
		}, nil},
		"a message of 4 GiB": {func(f []byte) []byte { binary.LittleEndian.PutUint32(f[4:], 1<<32-1); return f }, io.EOF},
		"another byte order": {func(f []byte) []byte { f[0] = 'x'; return f }, errNoMessage},
	} {
		call, ok, err := readCall(t, c.spoil(bytes.Clone(good)))
		assert.ErrorIs(t, err, c.err, name)
		assert.False(t, ok, name)
		assert.Empty(t, call.Sender, name)
	}
}

// Nothing is sent to who wants no answer; the bus would drop it, and tell nobody.
func TestNoAnswerWhereNoneIsWanted(t *testing.T) {
	t.Parallel()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "s"), Net: "unix"})
	require.NoError(t, err)
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: l.Addr().String(), Net: "unix"})
	require.NoError(t, err)
	other, err := l.AcceptUnix()
	require.NoError(t, err)
	require.NoError(t, l.Close())
	defer func() { _ = other.Close() }()
	s := &Service{stream: &stream{conn: conn}}
	defer s.Close()
	require.NoError(t, s.Reply(Call{Sender: ":1.7", serial: 1, NoReply: true}, "x"))
	require.NoError(t, s.Fail(Call{Sender: ":1.7", serial: 2, NoReply: true}, "a.b", "x"))
	require.NoError(t, s.Reply(Call{Sender: ":1.7", serial: 3}, "x"))
	m, err := dbus.DecodeMessage(other)
	require.NoError(t, err)
	assert.Equal(t, uint32(3), m.Headers[dbus.FieldReplySerial].Value())
}

// FuzzCalls reads two messages from any bytes: nothing panics, a call is one whose
// sender is known, and what follows a message that was passed over is found.
func FuzzCalls(f *testing.F) {
	for _, order := range []binary.ByteOrder{binary.LittleEndian, binary.BigEndian} {
		f.Add(message(f, order, 0))
		f.Add(message(f, order, dbus.FlagAllowInteractiveAuthorization, []string{"velum", "etcd"}, true, uint64(1), "because"))
		f.Add(message(f, order, 0, make([]byte, maxCall)))
		signal := message(f, order, 0, "x")
		signal[1] = byte(dbus.TypeSignal)
		f.Add(signal)
	}
	last := message(f, binary.LittleEndian, 0, "last")
	f.Fuzz(func(t *testing.T, data []byte) {
		s := over(t, append(bytes.Clone(data), last...))
		for read := 0; ; read++ {
			call, ok, err := s.read()
			if err != nil {
				assert.NotErrorIs(t, err, ErrTooLarge)
				return
			}
			assert.LessOrEqual(t, read, (len(data)+len(last))/headLength, "each has a head")
			assert.True(t, !ok || call.Sender != "")
			assert.True(t, call.Err != nil || !ok || call.Member != "")
			if read == 1 && bytes.Equal(data, last) {
				assert.Equal(t, []any{"last"}, call.Args)
			}
		}
	})
}

// TestALargeMessageIsNotKept is not parallel, and measures what the process allocates.
func TestALargeMessageIsNotKept(t *testing.T) {
	large := message(t, binary.LittleEndian, 0, strings.Repeat("x", 31<<20))
	for _, kind := range []dbus.Type{dbus.TypeMethodCall, dbus.TypeSignal, dbus.TypeMethodReply} {
		large[1] = byte(kind)
		s, asks := over(t, large), over(t, large)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		call, isCall, err := s.read()
		require.NoError(t, err)
		_, err = asks.next()
		runtime.ReadMemStats(&after)
		assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<20), kind)
		assert.Equal(t, kind == dbus.TypeMethodCall, isCall && errors.Is(call.Err, ErrTooLarge), kind)
		assert.Equal(t, kind == dbus.TypeMethodReply, errors.Is(err, errTooMuch), kind)
	}
}

// The second message is found behind one that was not kept.
func TestReadingGoesOnBehindALargeMessage(t *testing.T) {
	t.Parallel()
	s := over(t, append(message(t, binary.LittleEndian, 0, make([]byte, maxCall+3)), message(t, binary.BigEndian, 0, "last")...))
	call, ok, err := s.read()
	require.NoError(t, err)
	require.True(t, ok)
	require.ErrorIs(t, call.Err, ErrTooLarge)
	call, ok, err = s.read()
	require.NoError(t, err)
	require.True(t, ok)
	assert.Equal(t, []any{"last"}, call.Args)
	_, _, err = s.read()
	require.ErrorIs(t, err, io.EOF)
}
