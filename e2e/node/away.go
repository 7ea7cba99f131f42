// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Away is a way in which a registry is unavailable to its clients.
type Away string

// The ways. A number is the status of every response.
const (
	Refused    Away = "refused"     // no process listens
	Reset      Away = "reset"       // each request resets its connection
	Expired    Away = "expired"     // TLS with a certificate that has expired
	Blackhole  Away = "blackhole"   // no answer to a SYN
	SilentDNS  Away = "silent DNS"  // a name whose DNS server does not answer
	SilentTLS  Away = "silent TLS"  // accepts connections, and nothing more
	SilentHTTP Away = "silent HTTP" // reads requests, and never answers
	LoginPage  Away = "login page"  // 302 to an HTML page
	Status401  Away = "401"
	Status403  Away = "403"
	Status404  Away = "404"
	Status429  Away = "429"
	Status500  Away = "500"
	Status503  Away = "503"
)

// Upstream is a registry that is away.
type Upstream struct {
	URL string
	CA  string        // file of the CA's certificate; empty: none needed
	Met chan struct{} // closed when SilentHTTP has read a request
}

// StartAway starts a registry that is away in this way. It ends with the test.
func (n *Node) StartAway(away Away) Upstream {
	n.tb.Helper()
	switch away {
	case Refused:
		return Upstream{URL: "http://" + n.localAddress()}
	case Blackhole:
		return Upstream{URL: "http://" + n.blackhole()}
	case SilentDNS:
		n.silenceDNS()
		return Upstream{URL: "https://registry.example.com"}
	case Reset:
		l := n.listen()
		go accept(l, func(c *net.TCPConn) { go reset(c) })
		return Upstream{URL: "http://" + l.Addr().String()}
	case SilentTLS:
		l := n.listen()
		go accept(l, func(c *net.TCPConn) { n.tb.Cleanup(func() { _ = c.Close() }) })
		return Upstream{URL: "https://" + l.Addr().String()}
	default:
		return n.answerAway(away)
	}
}

func (n *Node) localAddress() string { return fmt.Sprintf("127.0.0.1:%d", n.FreePort()) }

// listen opens a listener that is closed at the end of the test.
func (n *Node) listen() *net.TCPListener {
	n.tb.Helper()
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		n.tb.Fatalf("node: %v", err)
		return nil
	}
	n.tb.Cleanup(func() { _ = l.Close() })
	return l
}

func accept(l *net.TCPListener, treat func(*net.TCPConn)) {
	for {
		c, err := l.AcceptTCP()
		if err != nil {
			return
		}
		treat(c)
	}
}

// reset resets a connection whose client has written its request. A client that still writes would get "broken pipe" at
// some times, and "connection reset by peer" at others.
func reset(c *net.TCPConn) {
	_, _ = c.Read(make([]byte, 1))
	_ = c.SetLinger(0)
	_ = c.Close()
}

// answerAway starts a server that speaks HTTP.
func (n *Node) answerAway(away Away) Upstream {
	n.tb.Helper()
	l, up := n.listen(), Upstream{Met: make(chan struct{})}
	server := &http.Server{
		ErrorLog: log.New(io.Discard, "", 0), ReadHeaderTimeout: time.Minute,
		Handler: away.handler(sync.OnceFunc(func() { close(up.Met) })),
	}
	serve, scheme := server.Serve, "http://"
	if away == Expired {
		dir := filepath.Join(n.Dir, "expired")
		server.TLSConfig, up.CA = n.makeCertificates(dir, "expired", time.Now().Add(-time.Hour))
		serve, scheme = func(l net.Listener) error { return server.ServeTLS(l, "", "") }, "https://"
	}
	up.URL = scheme + l.Addr().String()
	n.tb.Cleanup(func() { _ = server.Close() })
	go func() { _ = serve(l) }()
	return up
}

func (a Away) handler(met func()) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		switch {
		case a == SilentHTTP:
			met()
			<-r.Context().Done()
			panic(http.ErrAbortHandler)
		case a == LoginPage && r.URL.Path != "/login":
			http.Redirect(w, r, "/login", http.StatusFound)
		case a == LoginPage:
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			_, _ = io.WriteString(w, "<!DOCTYPE html><html><body>Please log in.</body></html>\n")
		default:
			if a == Status401 {
				w.Header().Set("WWW-Authenticate", `Basic realm="registry"`)
			}
			status, _ := strconv.Atoi(string(a)) // 0: a way in which no request is answered
			w.WriteHeader(status)
		}
	}
}

// blackhole returns an address where the kernel drops each SYN: the accept queue of its socket is full.
func (n *Node) blackhole() string {
	n.tb.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		n.tb.Fatalf("node: blackhole: %v", err)
	}
	n.tb.Cleanup(func() { _ = unix.Close(fd) })
	port := n.FreePort()
	// As FreePort's listener: a connection of the test before may still be in TIME_WAIT.
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		n.tb.Fatalf("node: blackhole: %v", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		n.tb.Fatalf("node: blackhole: %v", err)
	}
	if err := unix.Listen(fd, 0); err != nil { // a queue of one connection
		n.tb.Fatalf("node: blackhole: %v", err)
	}
	address := fmt.Sprintf("127.0.0.1:%d", port)
	first, err := net.Dial("tcp", address)
	if err != nil {
		n.tb.Fatalf("node: blackhole: %v", err)
	}
	n.tb.Cleanup(func() { _ = first.Close() })
	return address
}

// silenceDNS gives the node a DNS server that does not answer. Names in /etc/hosts still resolve.
func (n *Node) silenceDNS() {
	n.tb.Helper()
	own := n.FreePort() // resolv.conf names no port, so each node needs its own address
	server, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 53, byte(own>>8), byte(own)), Port: 53})
	if err != nil {
		n.tb.Fatalf("node: name server: %v", err)
	}
	n.tb.Cleanup(func() { _ = server.Close() })
	host, _, _ := net.SplitHostPort(server.LocalAddr().String())
	n.WriteFile("etc/resolv.conf", "nameserver "+host+"\noptions timeout:1 attempts:1\n")
	n.Shell("mount --bind " + n.Path("etc/resolv.conf") + " /etc/resolv.conf")
}
