// SPDX-License-Identifier: Apache-2.0

// Command floor does the minimum of a poll: HEAD requests, one after another, on one kept-alive connection; and the
// minimum of a pull. The benchmarks compare the agent with it.
//
//	floor ROUNDS URL...
//	floor pull URL...      of manifests
package main

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "floor:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) < 2 {
		return errors.New("want ROUNDS URL, or pull URL")
	}
	if args[0] == "pull" {
		return pull(os.Stdout, args[1:])
	}
	rounds, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	client := &http.Client{}
	for range rounds {
		for _, url := range args[1:] {
			if err := head(client, url); err != nil {
				return err
			}
		}
	}
	return nil
}

func head(client *http.Client, url string) error {
	req, err := http.NewRequest(http.MethodHead, url, http.NoBody)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", "application/vnd.docker.distribution.manifest.v2+json")
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, resp.Status)
	}
	return nil
}
