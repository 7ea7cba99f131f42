// SPDX-License-Identifier: Apache-2.0

// Command answer is the program in the test images: a static web server that answers with the value of ANSWER, set by
// the image, and exits at once on SIGTERM. With the argument `pause` it only waits, like a pod's sandbox; with `end` it
// exits at once, like an init container. FAULT, which the image may set, makes it fail: `crash` exits at once with 1,
// `unready` answers 503 at /ready.
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
		fmt.Fprintln(os.Stderr, "usage: answer pause|end|HOST:PORT")
		os.Exit(2)
	}
	if os.Getenv("FAULT") == "crash" {
		fmt.Fprintln(os.Stderr, "crash")
		os.Exit(1)
	}
	switch os.Args[1] {
	case "end":
		return
	case "pause":
	default:
		go serve(os.Args[1])
	}
	<-ctx.Done()
}

func serve(address string) {
	answer := os.Getenv("ANSWER")
	fmt.Fprintln(os.Stdout, "serving", answer)
	server := http.Server{
		Addr: address, ReadHeaderTimeout: time.Minute,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/ready" && os.Getenv("FAULT") == "unready" {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
			fmt.Fprint(w, answer)
		}),
	}
	fmt.Fprintln(os.Stderr, server.ListenAndServe())
	os.Exit(1)
}
