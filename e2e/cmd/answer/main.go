// SPDX-License-Identifier: Apache-2.0

// Command answer is the program in the test images: a static web server that answers with the value of ANSWER, set by
// the image, and exits at once on SIGTERM. It answers gRPC's health protocol, too. With the argument `pause` it only
// waits, like a pod's sandbox; with `end` it exits at once, like an init container; with `ready` it exits with 0 if the
// image is not `unready`, like the command of a probe. FAULT, which the image may set, makes it fail: `crash` exits at
// once with 1, `unready` answers 503 at /ready, and NOT_SERVING.
package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: answer pause|end|ready|HOST:PORT")
		os.Exit(2)
	}
	if os.Getenv("FAULT") == "crash" {
		fmt.Fprintln(os.Stderr, "crash")
		os.Exit(1)
	}
	switch os.Args[1] {
	case "end":
		return
	case "ready":
		if isUnready() {
			os.Exit(1)
		}
		return
	case "pause":
	default:
		go serve(os.Args[1])
	}
	<-ctx.Done()
}

func isUnready() bool { return os.Getenv("FAULT") == "unready" }

// health answers grpc.health.v1.Health/Check with SERVING or NOT_SERVING: one message with the field status.
func health(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/grpc")
	w.Header().Set("Trailer", "Grpc-Status")
	status := byte(1)
	if isUnready() {
		status = 2
	}
	_, _ = w.Write([]byte{0, 0, 0, 0, 2, 1 << 3, status})
	w.Header().Set("Grpc-Status", "0")
}

func serve(address string) {
	answer := os.Getenv("ANSWER")
	fmt.Fprintln(os.Stdout, "serving", answer)
	protocols := &http.Protocols{}
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	server := http.Server{
		Addr: address, ReadHeaderTimeout: time.Minute, Protocols: protocols,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch {
			case r.URL.Path == "/grpc.health.v1.Health/Check":
				health(w)
				return
			case r.URL.Path == "/ready" && isUnready():
				w.WriteHeader(http.StatusServiceUnavailable)
			}
			fmt.Fprint(w, answer)
		}),
	}
	fmt.Fprintln(os.Stderr, server.ListenAndServe())
	os.Exit(1)
}
