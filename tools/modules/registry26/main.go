// SPDX-License-Identifier: Apache-2.0

// Command registry26 is the registry that air-gapped sites have run since 2017: the HTTP application of distribution
// 2.6.2, which answers all requests. The main package of that release would add the drivers of every cloud and two
// error reporters, in versions that are hard to find.
//
//	registry26 serve CONFIG
package main

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/docker/distribution/configuration"
	"github.com/docker/distribution/context"
	"github.com/docker/distribution/registry/handlers"
	_ "github.com/docker/distribution/registry/storage/driver/filesystem"
)

func main() {
	if err := serve(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "registry26:", err)
		os.Exit(1)
	}
}

func serve(args []string) error {
	if len(args) != 2 || args[0] != "serve" {
		return errors.New("usage: registry26 serve CONFIG")
	}
	file, err := os.Open(args[1])
	if err != nil {
		return err
	}
	defer file.Close()
	config, err := configuration.Parse(file)
	if err != nil {
		return err
	}
	listener, err := net.Listen(config.HTTP.Net, config.HTTP.Addr)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: handlers.NewApp(context.Background(), config), ReadHeaderTimeout: time.Minute}
	return server.Serve(listener)
}
