// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// Tap is a unix socket between clients of containerd and containerd. It forwards all bytes unchanged and parses them:
// it sees each gRPC call (https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md) and can stop it at any frame.
type Tap struct {
	Socket string // the clients' address, as a path below Root ("/run/tap.sock")

	node   *Node
	server string // containerd's address

	working  sync.WaitGroup
	lock     sync.Mutex
	listener net.Listener      // nil: down
	open     map[net.Conn]bool // both ends of each connection
	at       func(Moment) bool
}

// Event is an event of a gRPC call.
type Event int

// The events of a call, each before the tap forwards it.
const (
	Called   Event = iota // the client sends the method's name
	Sent                  // the client sends data: a message, or part of one
	Answered              // the server sends the status, which ends the response
)

// Moment is an event of a call.
type Moment struct {
	Method string // "/containerd.services.content.v1.Content/Write"
	Event  Event
	Data   []byte // of Sent; valid only until the call returns
}

// Tap starts a tap for containerd.
func (n *Node) Tap() *Tap {
	n.tb.Helper()
	t := &Tap{Socket: "/run/tap.sock", node: n, server: n.Path(socketPath), open: map[net.Conn]bool{}}
	t.up()
	n.tb.Cleanup(func() {
		t.down()
		t.working.Wait()
	})
	return t
}

// Watch calls at for each moment from now on; nil ends that. If at returns false, the connection is closed instead of
// forwarding. While at waits, everything behind it in that direction of the connection waits, too.
func (t *Tap) Watch(at func(Moment) bool) {
	t.lock.Lock()
	defer t.lock.Unlock()
	t.at = at
}

// Follow must be called after containerd was killed: it closes the connections, and refuses new ones until containerd
// accepts them.
func (t *Tap) Follow() {
	t.down()
	t.working.Go(t.up)
}

func (t *Tap) down() {
	t.lock.Lock()
	defer t.lock.Unlock()
	if t.listener != nil {
		if err := errors.Join(refuse(t.listener), t.listener.Close()); err != nil {
			t.node.tb.Errorf("node: tap: %v", err)
		}
		t.listener = nil
	}
	for conn := range t.open {
		_ = conn.Close()
	}
}

// up listens as soon as containerd does.
func (t *Tap) up() {
	ctx, cancel := context.WithTimeout(t.node.tb.Context(), Patience)
	defer cancel()
	for !t.answers(ctx) {
		select {
		case <-ctx.Done():
			return
		case <-time.After(pollInterval):
		}
	}
	path := t.node.Path(t.Socket)
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		t.node.tb.Errorf("node: tap: %v", err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.node.tb.Errorf("node: tap: %v", err)
		return
	}
	l.SetUnlinkOnClose(false) // a killed server leaves its socket file
	t.lock.Lock()
	defer t.lock.Unlock()
	if ctx.Err() != nil { // the test has ended, and so has the last call of down
		_ = l.Close()
		return
	}
	t.listener = l
	t.working.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			t.working.Go(func() { t.serve(l, client) })
		}
	})
}

func (t *Tap) answers(ctx context.Context) bool {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", t.server)
	return err == nil && conn.Close() == nil
}

// serve forwards the bytes between one client and containerd until one of them closes the connection.
func (t *Tap) serve(l net.Listener, client net.Conn) {
	defer func() { _ = client.Close() }()
	server, err := net.Dial("unix", t.server)
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	if !t.join(l, client, server) {
		return
	}
	defer t.leave(client, server)
	c := &conversation{tap: t, methods: map[uint32]string{}}
	answers := make(chan struct{})
	go func() {
		defer close(answers)
		c.pass(client, server, c.answer)
	}()
	// A connection starts with the client's preface, and continues with frames (RFC 9113, section 3.4).
	if _, err := io.CopyN(server, client, int64(len(http2.ClientPreface))); err == nil {
		c.pass(server, client, c.call)
	}
	_ = server.Close()
	<-answers
}

// join returns false if the tap has gone down since l accepted the connection.
func (t *Tap) join(l net.Listener, conns ...net.Conn) bool {
	t.lock.Lock()
	defer t.lock.Unlock()
	if t.listener != l {
		return false
	}
	for _, conn := range conns {
		t.open[conn] = true
	}
	return true
}

func (t *Tap) leave(conns ...net.Conn) {
	t.lock.Lock()
	defer t.lock.Unlock()
	for _, conn := range conns {
		delete(t.open, conn)
	}
}

func (t *Tap) pass(m Moment) bool {
	t.lock.Lock()
	at := t.at
	t.lock.Unlock()
	return at == nil || at(m)
}

// conversation is one connection.
type conversation struct {
	tap *Tap

	lock    sync.Mutex
	methods map[uint32]string // by stream id
}

// pass forwards frames while seen returns true, and then closes to.
func (c *conversation) pass(to io.WriteCloser, from io.Reader, seen func(http2.Frame) bool) {
	defer func() { _ = to.Close() }()
	var raw bytes.Buffer
	frames := http2.NewFramer(nil, io.TeeReader(from, &raw))
	frames.ReadMetaHeaders = hpack.NewDecoder(4096, nil) // the initial size (RFC 7541), which neither side changes
	for {
		frame, err := frames.ReadFrame()
		if err != nil || !seen(frame) {
			return
		}
		if _, err := raw.WriteTo(to); err != nil {
			return
		}
	}
}

// call handles a frame of the client.
func (c *conversation) call(frame http2.Frame) bool {
	switch f := frame.(type) {
	case *http2.MetaHeadersFrame:
		method := f.PseudoValue("path")
		c.lock.Lock()
		c.methods[f.StreamID] = method
		c.lock.Unlock()
		return c.tap.pass(Moment{Method: method, Event: Called})
	case *http2.DataFrame:
		return len(f.Data()) == 0 || c.tap.pass(Moment{Method: c.method(f.StreamID), Event: Sent, Data: f.Data()})
	}
	return true
}

// answer handles a frame of the server.
func (c *conversation) answer(frame http2.Frame) bool {
	f, ok := frame.(*http2.MetaHeadersFrame)
	return !ok || !f.StreamEnded() || c.tap.pass(Moment{Method: c.method(f.StreamID), Event: Answered})
}

func (c *conversation) method(stream uint32) string {
	c.lock.Lock()
	defer c.lock.Unlock()
	return c.methods[stream]
}

// Part is a part of a response.
type Part int

// The parts of a response: before the registry is asked, half of the body sent, all of it sent.
const (
	None Part = iota
	Half
	All
)

// Watch returns an Intercept that forwards every request, and calls at for each part of its response; a response
// without a body has only the first. While at waits, the client waits, too.
func (r *Registry) Watch(at func(q Request, p Part)) Intercept {
	proxy := r.proxy()
	return func(w http.ResponseWriter, request *http.Request) bool {
		q := parse(request)
		at(q, None)
		proxy.ServeHTTP(&partedWriter{ResponseWriter: w, at: func(p Part) { at(q, p) }}, request)
		return true
	}
}

// partedWriter stops at the parts of a body.
type partedWriter struct {
	http.ResponseWriter
	at   func(Part)
	sent int64
}

// Write writes the body in two halves.
func (w *partedWriter) Write(p []byte) (int, error) {
	size, err := strconv.ParseInt(w.Header().Get("Content-Length"), 10, 64)
	if err != nil {
		return w.ResponseWriter.Write(p)
	}
	var first int
	if half := size / 2; w.sent < half && w.sent+int64(len(p)) >= half {
		if first, err = w.write(p[:half-w.sent]); err != nil {
			return first, err
		}
		w.at(Half)
	}
	rest, err := w.write(p[first:])
	if err == nil && w.sent == size {
		w.at(All)
	}
	return first + rest, err
}

func (w *partedWriter) write(p []byte) (int, error) {
	n, err := w.ResponseWriter.Write(p)
	w.sent += int64(n)
	if err == nil {
		err = http.NewResponseController(w.ResponseWriter).Flush()
	}
	return n, err
}

// Unwrap gives http.ResponseController access to the connection.
func (w *partedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
