// SPDX-License-Identifier: Apache-2.0

// Package verifies is shared by the programs that verify with the code of one version of cosign. The tests in
// e2e/neighbours compare the agent with them.
package verifies

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
)

// Request asks which of the keys have signed a digest.
type Request struct {
	Registry Registry `json:"registry"`
	Digest   string   `json:"digest"`
	Keys     []string `json:"keys"` // public ones in PEM
}

// Answer lists for each key the ways in which its signature is found.
type Answer struct {
	Ways [][]string `json:"ways"`
}

// cosign's ways to verify an image.
const (
	Simple    = "simple"    // cosign verify: the tag sha256-HEX.sig
	Referrers = "referrers" // cosign verify --experimental-oci11
	Bundle    = "bundle"    // cosign verify --new-bundle-format
	Message   = "message"   // cosign verify-blob --bundle, of the manifest
)

// Ways verifies the digest at HOST/REPOSITORY@DIGEST with a key, in each way.
type Ways func(ctx context.Context, from *Registry, image, key string) (map[string]error, error)

// Serve answers each line of standard input, a JSON request, with a line of JSON.
func Serve(ways Ways) {
	if err := serve(os.Stdin, os.Stdout, ways); err != nil {
		fmt.Fprintln(os.Stderr, "verifies:", err)
		os.Exit(1)
	}
}

func serve(in io.Reader, out io.Writer, ways Ways) error {
	requests, answers := json.NewDecoder(in), json.NewEncoder(out)
	for {
		var r Request
		if err := requests.Decode(&r); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		a, err := answer(r, ways)
		if err != nil {
			return err
		}
		if err := answers.Encode(a); err != nil {
			return err
		}
	}
}

func answer(r Request, ways Ways) (Answer, error) {
	var a Answer
	for _, key := range r.Keys {
		tried, err := ways(context.Background(), &r.Registry, Host+"/"+r.Registry.Repository+"@"+r.Digest, key)
		if err != nil {
			return Answer{}, err
		}
		found := []string{}
		for _, way := range []string{Simple, Referrers, Bundle, Message} {
			if err, ok := tried[way]; ok && err == nil {
				found = append(found, way)
			}
		}
		a.Ways = append(a.Ways, found)
	}
	return a, nil
}
